"""Walk through pages as a reader does: write their files, run their commands, and stop at the first that fails.

A page is walked in an empty folder with a home of its own, from its first block to its last:

    ```sh           each line is a command, which must exit with 0
    ```console      the same for lines that begin with `$ `, without a remark beside them; others show what is printed
    ```python       runs, with the names of the blocks before it
    ```yaml         is written to the file that `<!-- file: NAME -->` in the line above names; so is ```python

Lines of notes above a block say more about it:

    <!-- says: PHRASE | PHRASE -->               its output contains these
    <!-- exits: 2 -->                            another exit code
    <!-- serves: PHRASE -->                      each command prints this, goes on, and is then ended by Ctrl-C
    <!-- with: WORD=TEXT WORD=TEXT -->           placeholders, and what they are in the walk
    <!-- keeps: NAME -->                         a block of Python is run, and is also written to this file
    <!-- unrun: COMMAND (reason) | COMMAND … --> commands that begin so are listed, and are not run

Figures are not compared, for they differ from machine to machine. Other blocks are only shown. What a reader would
have beside the page is in `docs/walked/PAGE/`. It is copied first, then `before.sh` is run, and `before.py` begins the
Python.

    python docs/walk.py                                the README, the tutorial and all how-tos
    python docs/walk.py docs/how-to/will-it-fit.md     one page
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
BESIDE = HERE / "walked"
"""A folder for each page that needs files or runs from before."""
PAGES = [
    HERE.parent / "README.md",
    HERE / "tutorial.md",
    *sorted((HERE / "how-to").glob("*.md")),
    *(HERE / f"{name}.md" for name in ("commands", "own-model", "recommending", "dashboard", "schemas")),
]
"""The pages that are walked."""
_BLOCK = re.compile(r"(?P<notes>(?:<!-- \w+: [^\n]* -->\n)*)```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
_NOTE = re.compile(r"<!-- (\w+): (.*?) -->")
_PROGRAM = "walked.py"
_LONGEST = 1800
"""Seconds of one command."""
_SETTLED = 1
"""Seconds for which a server must go on after its first word."""


@dataclass(frozen=True)
class Block:
    """A block of a page that is run or written."""

    language: str
    text: str
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def says(self) -> list[str]:
        """Phrases that the output must contain."""
        return _parts(self.notes.get("says", ""))

    @property
    def exits(self) -> int:
        """The exit code of each command."""
        return int(self.notes.get("exits", 0))

    @property
    def commands(self) -> list[str]:
        """Commands of the shell that are run, with what placeholders stand for."""
        return [self._filled(one) for one in self._lines() if not self._reason(one)]

    @property
    def unrun(self) -> list[str]:
        """Commands that are not run, each with the reason."""
        return [f"{one} ({self._reason(one)})" for one in self._lines() if self._reason(one)]

    def _lines(self) -> list[str]:
        lines = [one.strip() for one in self.text.replace("\\\n", " ").splitlines() if one.strip()]
        if self.language == "console":
            lines = [re.split(r"\s{3,}", one[2:])[0] for one in lines if one.startswith("$ ")]
        return [re.split(r"\s+# ", one)[0] for one in lines if not one.startswith("#")]

    def _reason(self, command: str) -> str:
        named = (one.partition(" (") for one in _parts(self.notes.get("unrun", "")))
        return next((why.removesuffix(")") for begin, _, why in named if command.startswith(begin)), "")

    def _filled(self, command: str) -> str:
        for word in self.notes.get("with", "").split():
            name, _, text = word.partition("=")
            command = re.sub(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", text, command)
        return command


class Stumbled(Exception):
    """A command of a page did not do what the page says."""


def _parts(text: str) -> list[str]:
    return [one.strip() for one in text.split("|") if one.strip()]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page that are run or written, in order."""
    found = [
        Block(match["language"], match["text"], dict(_NOTE.findall(match["notes"]))) for match in _BLOCK.finditer(page)
    ]
    return [one for one in found if "file" in one.notes or one.language in ("sh", "console", "python")]


def walk(page: Path, folder: Path) -> int:
    """Run a page in a folder, and return the number of its commands. Raises `Stumbled`."""
    count, program = 0, _prepared(page, folder)
    for block in blocks(page.read_text(encoding="utf-8")):
        if name := block.notes.get("file") or block.notes.get("keeps"):
            (folder / name).write_text(block.text, encoding="utf-8")
        if "file" in block.notes:
            continue
        commands = block.commands
        if block.language == "python":
            program += block.text
            (folder / _PROGRAM).write_text(program, encoding="utf-8")
            commands = [f'"{sys.executable}" {_PROGRAM}']
        if phrase := block.notes.get("serves"):
            for command in commands:
                _serve(command, phrase, folder)
        else:
            output = "".join(_run(command, block.exits, folder) for command in commands)
            missing = [one for one in block.says if one not in output]
            if missing:
                raise Stumbled(f"{page.name}: {commands[-1]} does not say {missing}:\n{output}")
        count += len(commands)
        for one in block.unrun:
            print(f"{page.name}: not run: {one}", flush=True)
    return count


def _prepared(page: Path, folder: Path) -> str:
    """Put what a reader would have into the folder, and return the beginning of its Python."""
    beside = BESIDE / page.name
    if not beside.is_dir():
        return ""
    shutil.copytree(beside, folder, dirs_exist_ok=True)
    if (folder / "before.sh").exists():
        _run("sh -e before.sh", 0, folder)
    begin = folder / "before.py"
    return begin.read_text(encoding="utf-8") if begin.exists() else ""


def _place(folder: Path) -> dict[str, str]:
    """Return the environment of a command. `BROWSER` opens nothing."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "ASSAY_HOME": str(folder / "home"), "REPOSITORY": str(HERE.parent)}
    return {**os.environ, **own, "COLUMNS": "160", "MPLBACKEND": "agg", "BROWSER": "true"}


def _run(command: str, exits: int, folder: Path) -> str:
    """Run one command, and return its output and its messages. Raises `Stumbled` for another exit code."""
    options = {"shell": True, "cwd": folder, "env": _place(folder), "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=_LONGEST, **options)
    if done.returncode != exits:
        raise Stumbled(f"{command}\nexits with {done.returncode}, not {exits}:\n{done.stdout}{done.stderr}")
    return str(done.stdout + done.stderr)


def _serve(command: str, phrase: str, folder: Path) -> None:
    """Start a command that goes on, wait for what it prints, and end it. Raises `Stumbled` if it ends by itself."""
    pipe, said = subprocess.PIPE, ""
    options = {"shell": True, "cwd": folder, "env": _place(folder), "text": True, "start_new_session": True}
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, **options) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if phrase in line:
                break
        time.sleep(_SETTLED)
        went_on = phrase in said and process.poll() is None
        if went_on:
            os.killpg(process.pid, signal.SIGINT)
        try:
            said += process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            went_on = False
    if not went_on:
        raise Stumbled(f"{command}\ndoes not go on after saying {phrase!r}, or does not end by Ctrl-C:\n{said}")


def main(names: list[str]) -> int:
    """Walk through the named pages, or through all; returns the exit code."""
    failed = 0
    for page in [Path(name) for name in names] or PAGES:
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
