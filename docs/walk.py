"""Walk through pages as a reader does: write their files, run their commands, and stop at the first that fails.

A page is walked in an empty folder with a home of its own, from its first block to its last:

    ```sh           each line is a command, which must exit with 0
    ```python       runs, with the names of the blocks before it
    ```yaml         is written to the file that `<!-- file: NAME -->` in the line above names; so is ```python

Before a block of commands, `<!-- says: PHRASE | PHRASE -->` lists what its output must contain, and `<!-- exits: 2 -->`
another exit code. Figures are not compared, for they differ from machine to machine. Other blocks are only shown.

    python docs/walk.py                                the tutorial and all how-tos
    python docs/walk.py docs/how-to/will-it-fit.md     one page
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_BLOCK = re.compile(r"(?P<notes>(?:<!-- \w+: [^\n]* -->\n)*)```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
_NOTE = re.compile(r"<!-- (\w+): (.*?) -->")
_PROGRAM = "walked.py"


@dataclass(frozen=True)
class Block:
    """A block of a page that is run or written."""

    language: str
    text: str
    file: str | None
    says: tuple[str, ...]
    exits: int


class Stumbled(Exception):
    """A command of a page did not do what the page says."""


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page that are run or written, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        notes = dict(_NOTE.findall(match["notes"]))
        says = tuple(one.strip() for one in notes.get("says", "").split("|") if one.strip())
        one = Block(match["language"], match["text"], notes.get("file"), says, int(notes.get("exits", 0)))
        if one.file or one.language in ("sh", "python"):
            found.append(one)
    return found


def walk(page: Path, folder: Path) -> int:
    """Run a page in a folder, and return the number of its commands. Raises `Stumbled`."""
    count, program = 0, ""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
            continue
        if block.language == "python":
            program += block.text
            (folder / _PROGRAM).write_text(program, encoding="utf-8")
            commands = [f'"{sys.executable}" {_PROGRAM}']
        else:
            commands = [one for one in block.text.splitlines() if one.strip()]
        output = "".join(_run(command, block.exits, folder) for command in commands)
        missing = [phrase for phrase in block.says if phrase not in output]
        if missing:
            raise Stumbled(f"{page.name}: {commands[-1]} does not say {missing}:\n{output}")
        count += len(commands)
    return count


def _run(command: str, exits: int, folder: Path) -> str:
    """Run one command, and return its output and its messages. Raises `Stumbled` for another exit code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    place = {**os.environ, "PATH": path, "ASSAY_HOME": str(folder / "home"), "COLUMNS": "160", "MPLBACKEND": "agg"}
    done = subprocess.run(command, shell=True, cwd=folder, env=place, capture_output=True, text=True, timeout=1800)
    if done.returncode != exits:
        raise Stumbled(f"{command}\nexits with {done.returncode}, not {exits}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main(names: list[str]) -> int:
    """Walk through the named pages, or through the tutorial and all how-tos; returns the exit code."""
    pages = [Path(name) for name in names] or [HERE / "tutorial.md", *sorted((HERE / "how-to").glob("*.md"))]
    failed = 0
    for page in pages:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                count = walk(page, Path(folder))
                print(f"{page.name}: {count} commands, {time.monotonic() - start:.0f} s", flush=True)
            except Stumbled as fault:
                failed += 1
                print(f"{page.name}: {fault}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
