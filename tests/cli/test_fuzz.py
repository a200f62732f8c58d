"""Ten thousand command lines and configurations at random: no traceback, no exit 1, and nothing written on exit 2.

No child is started: whatever would start one ends the command well instead. Everything before that is the real thing,
in this process, on a folder of a few small files.
"""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import typer

from assay.cli import console
from assay.errors import LONGEST_SENTENCE
from cli.fuzz_words import COMMAND, Case, case

CORPUS = "The quick brown fox jumps over the lazy dog.\n" * 50


class Wrong(AssertionError):
    """A case that did not end as it must."""


def started(*args: object, **options: object) -> None:
    """Stand in the place of whatever starts a child."""
    raise typer.Exit(0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for seam in (
        "assay.launch.spawn.start",
        "assay.studies.execution.ready.start",
        "assay.launch.anatomy._measured",
        "assay.launch.rates._measure",
        "assay.launch.step_times._started",
        "assay.launch.own._answer",
        "uvicorn.Server.run",
    ):
        monkeypatch.setattr(seam, started)
    monkeypatch.setattr("assay.data.published._fetch", unreachable)
    monkeypatch.setattr("assay.data.preparation._from_hub", unreachable)
    monkeypatch.setattr("assay.data.documents._ask_hub", unreachable)
    monkeypatch.setattr("assay.data.corpora._library_files", lambda root: (tmp_path / "corpus.txt",))
    monkeypatch.setattr("assay.cli.study_output._watched", lambda measure: measure())
    monkeypatch.setattr("assay.hardware.examination._REPEATS", 20)  # 400 take half a second of each assay doctor
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    console.settle()
    return tmp_path


def unreachable(*args: object) -> None:
    from assay.errors import UsageError

    raise UsageError("there is no network in a test")


def lay_out(place: Path) -> None:
    """Only the files that every case begins with."""
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (place / "corpus.txt").write_text(CORPUS)
    (place / "small").mkdir()
    (place / "small" / "one.txt").write_text(CORPUS)


def seen(place: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in place.rglob("*") if path.is_file()} | {
        str(path): 0 for path in place.rglob("*") if path.is_dir()
    }


def ended(words: tuple[str, ...]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="assay.spelled") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), no_input():
        try:
            COMMAND.main(args=list(words), prog_name="assay")
        except SystemExit as end:
            code = int(end.code or 0)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


@contextmanager
def no_input() -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO()
    try:
        yield
    finally:
        sys.stdin = before


def check(place: Path, drawn: Case) -> int:
    """Run one case. Raises `Wrong` where it does not end as it must."""
    raw = drawn.text if isinstance(drawn.text, bytes) else drawn.text.encode(errors="surrogatepass")
    (place / "run.yaml").write_bytes(raw)
    before = seen(place)
    code, out, err = ended(drawn.words)
    if code == 1 or "Traceback" in out + err:
        raise Wrong(f"exit {code}: {err[-600:]}")
    if code == 2:
        if seen(place) != before:
            raise Wrong(f"exit 2 has written {sorted(seen(place).items() ^ before.items())[:4]}: {err[-300:]}")
        last = err[err.rfind("\nassay: ") + 1 :].removesuffix("\n")
        if not (out + err).startswith("Usage:") and (
            not last.startswith("assay: ")
            or not last.isprintable()
            or not 0 < len(last) - len("assay: ") <= LONGEST_SENTENCE
        ):
            raise Wrong(f"exit 2 without one line: {err[-600:]!r}")
    if seen(place) != before:
        lay_out(place)
    return code


def campaign(place: Path, numbers: range) -> dict[int, int]:
    """Run the cases with these numbers → how many ended with which exit code."""
    lay_out(place)
    tally: dict[int, int] = {}
    failures = []
    for number in numbers:
        drawn = case(number)
        try:
            code = check(place, drawn)
        except Exception as error:
            failures.append(f"case {number}: {drawn.words!r}\n  file: {drawn.text[:300]!r}\n  {error!r}")
            lay_out(place)
            continue
        tally[code] = tally.get(code, 0) + 1
    assert not failures, f"{len(failures)} of {len(numbers)} cases\n" + "\n".join(failures[:20])
    return tally


def test_some_command_lines(place: Path) -> None:
    tally = campaign(place, range(500))
    assert tally[0] >= 50
    assert tally[2] >= 200


@pytest.mark.slow
@pytest.mark.parametrize("part", range(19))
def test_many_command_lines(place: Path, part: int) -> None:
    campaign(place, range(500 * (part + 1), 500 * (part + 2)))


def test_a_case_is_its_number() -> None:
    assert case(7) == case(7)
    assert len({case(number).words for number in range(100)}) > 90
    assert os.path.basename(case(7).words[0]) in COMMAND.commands
