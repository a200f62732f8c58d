"""Commands that pages show can be parsed, and the walk through a page stops at what a reader would stumble over."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from assay.cli.main import VERBS, app
from assay.config.model import ModelConfig
from assay.config.run import DataConfig, TrainingConfig
from assay.optimizations import catalogue
from support.docs import DOCS, program

ROOT = Path(__file__).parents[1]
WALKED = program("walk").PAGES
PAGES = [ROOT / "CONTRIBUTING.md", *sorted({*DOCS.glob("*.md"), *WALKED})]
TRANSLATED = [DOCS / "coming-from.md", DOCS / "left-out.md", *WALKED]


def shown(page: str) -> set[str]:
    """Return the commands of a page: lines of its blocks, and code in its text, without the remarks beside them."""
    blocks = re.findall(r"```(?:sh|console|text)?\n(.*?)```", page, flags=re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    named = [" ".join(one.split()) for one in re.findall(r"`(assay [^`]*)`", text)]
    lines += [re.sub(r" --[\w-]+$", "", one) for one in named]  # "`assay estimate --trace`" names an option
    parts = [part.strip() for line in lines for part in re.split(r"\s·\s|\s{3,}|\s#\s|\sfrom a\s", line.strip())]
    return {part for part in parts if part.startswith("assay ") and "…" not in part and "|" not in part}


COMMANDS = sorted({one for page in PAGES for one in shown(page.read_text(encoding="utf-8"))})


def fault(command: str, root: Any) -> str:
    """Return why the command line cannot read a command, without running it; empty if it can."""
    words, found = shlex.split(command)[1:], root
    if "--help" in words:
        return ""
    try:
        context = found.make_context("assay", list(words))
        while words and hasattr(found, "commands"):
            _, found, words = found.resolve_command(context, words)
        if words:
            found.make_context("verb", list(words), parent=context)
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        return f"{command}: {error}"
    return ""


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(app)


def test_every_command_of_a_page_can_be_read(root: Any) -> None:
    assert len(COMMANDS) > 150
    assert [found for one in COMMANDS if (found := fault(one, root))] == []


@pytest.mark.parametrize("wrong", ["assay trian demo", "assay train demo --seeds 3", "assay scaling fit --law kaplan"])
def test_a_wrong_command_cannot(wrong: str, root: Any) -> None:
    assert fault(wrong, root)


def test_every_verb_is_run_by_a_page_that_is_walked(walk: Any) -> None:
    run = [
        command.split()[1]
        for page in WALKED
        for block in walk.blocks(page.read_text(encoding="utf-8"))
        if block.language in ("sh", "console")
        for command in block.commands
        if command.startswith("assay ")
    ]
    assert set(run) == set(VERBS)


@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.name)
def test_a_page_that_is_walked_has_every_program_that_it_names(walk: Any, page: Path) -> None:
    beside = walk.BESIDE / page.name
    script = beside / "before.sh"
    given = script.read_text(encoding="utf-8") if script.exists() else ""
    written = {one.name for one in beside.glob("*.py")}
    for block in walk.blocks(page.read_text(encoding="utf-8")):
        written |= {block.notes[note] for note in ("file", "keeps") if note in block.notes}
        for command in block.commands if block.language in ("sh", "console") else ():
            for name in re.findall(r"(?<![\w/.-])([\w-]+\.py)\b", command):
                assert name in written or name in given, f"{command} needs {name}"


def test_every_command_in_the_reading_matter_is_run_or_listed(walk: Any) -> None:
    """Blocks of commands that a walk would pass over stand in none of its pages, but for what `make` does."""
    for page in WALKED:
        text = page.read_text(encoding="utf-8")
        passed_over = re.findall(r"```(?:text)?\n((?:\$ )?assay .*?)```", text, flags=re.DOTALL)
        assert not passed_over, f"{page.name}: {passed_over}"


def test_a_command_that_is_not_run_has_a_reason(walk: Any) -> None:
    unrun = [one for page in WALKED for block in walk.blocks(page.read_text(encoding="utf-8")) for one in block.unrun]
    assert len(set(unrun)) <= 20
    assert all(re.search(r" \([a-z0-9].{5,}\)$", one) for one in unrun), unrun


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.stem)
def test_named_keys_and_techniques_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parts = {"model": ModelConfig, "data": DataConfig, "training": TrainingConfig}
    for part, key in re.findall(r"\b(model|data|training)\.([a-z_0-9]+)=", text):
        assert key in parts[part].model_fields, f"{part}.{key}"
    for stack in re.findall(r"--with ([a-z_0-9+]+)", text):
        assert set(stack.split("+")) <= set(catalogue()), stack


@pytest.fixture(scope="module")
def walk() -> Any:
    return program("walk")


def walked(walk: Any, folder: Path, text: str) -> int:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return int(walk.walk(page, folder))


def test_a_page_is_walked_from_its_first_block_to_its_last(walk: Any, tmp_path: Path) -> None:
    text = """
<!-- file: words.txt -->
```text
one two
```
<!-- says: one -->
```sh
cat words.txt
echo $ASSAY_HOME > home.txt
```
```python
first = 1
```
<!-- says: 2 -->
```python
print(first + 1)
```
<!-- says: no -->
<!-- exits: 3 -->
```sh
echo no >&2; exit 3
```
```text
false
```
"""
    assert walked(walk, tmp_path, text) == 5
    assert (tmp_path / "home.txt").read_text().strip() == str(tmp_path / "home")


def test_notes_fill_in_keep_and_leave_out(walk: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
<!-- keeps: kept.py -->
```python
one = 1
```
<!-- with: RUN=small FILE=my-file -->
<!-- unrun: sleep (minutes) | false (it fails) -->
```sh
sleep 1000
echo RUN > FILE    # a remark; RUNNER is no placeholder
echo RUNNER >> FILE
false
```
<!-- says: one = 1 -->
```console
$ cat kept.py      (a remark that no shell reads)
one = 1
```
<!-- serves: ready -->
```sh
echo ready; exec sleep 1000
```
"""
    assert walked(walk, tmp_path, text) == 5
    assert (tmp_path / "my-file").read_text() == "small\nRUNNER\n"
    assert capsys.readouterr().out.splitlines() == [
        "page.md: not run: sleep 1000 (minutes)",
        "page.md: not run: false (it fails)",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<!-- serves: ready -->\n```sh\necho ready; exit 0\n```",
        "```sh\nfalse\n```",
        "<!-- exits: 1 -->\n```sh\ntrue\n```",
        "<!-- says: yes -->\n```sh\necho no\n```",
    ],
)
def test_a_walk_stops_where_a_reader_would(walk: Any, tmp_path: Path, text: str) -> None:
    with pytest.raises(walk.Stumbled):
        walked(walk, tmp_path, text)
