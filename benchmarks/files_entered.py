"""Count the files and functions of assay that a question enters, from what is typed to what is shown.

    python benchmarks/files_entered.py [NAME …]       of: page, train, child, estimate, recommend

Each question is asked twice in one process, and the second time is counted, so that imports are left out. A function
that is defined in another is one of its own; a comprehension and the body of a module are none. Of `train` it is the
parent until it starts the child, and of `child` the measured process until its first step. It needs no GPU, about a
minute, and writes into temporary folders only.
"""

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import assay

ROOT = Path(__file__).parents[1]
SOURCE = str(Path(assay.__file__).parent)
STUDY = ROOT / "docs" / "studies" / "wikitext-recipe-attention" / "study.tar.xz"
sys.path.insert(0, str(ROOT / "tests"))


class Reached(BaseException):
    """The function is entered at which the count ends."""


def entered(ask: Callable[[], object], until: CodeType | None = None) -> set[tuple[str, str]]:
    """Return file and name of each function of assay that a question enters, in this thread."""
    found = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE):
            return
        if code is until:
            raise Reached
        name = code.co_qualname.rpartition(".")[2]
        if not name.startswith("<"):
            found.add((code.co_filename.removeprefix(f"{SOURCE}{os.sep}"), code.co_qualname))

    sys.setprofile(profile)
    try:
        with contextlib.suppress(Reached):
            ask()
    finally:
        sys.setprofile(None)
    return found


def verb(*words: str) -> Callable[[], object]:
    """Return a command of the command line as a function, which prints nothing."""
    from assay.cli.main import app

    def ask() -> object:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return app(list(words), standalone_mode=False)

    return ask


def page(folder: Path) -> set[tuple[str, str]]:
    """Count from a stored study to its printed answer and its page."""
    from assay.api.runs import import_archive
    from assay.api.study import show
    from assay.cli.study_output import print_answer
    from assay.config import Home
    from assay.report import view
    from assay.report.kit.view import write_page

    home = Home(folder)
    (study,) = (one.removeprefix("reports/") for one in import_archive(STUDY, home=home).new if "reports/" in one)

    def ask() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            answer = view(show(study, home))
            print_answer(answer, write_page(answer, home), as_json=False)

    ask()
    return entered(ask)


def train(folder: Path) -> set[tuple[str, str]]:
    """Count from `assay train demo` until the child is started."""
    from assay.launch.spawn import _spawn

    ask = verb("train", "demo")
    entered(ask, _spawn.__code__)
    return entered(ask, _spawn.__code__)


def child(folder: Path) -> set[tuple[str, str]]:
    """Count in the measured process until its first step."""
    from assay.training.loop import take_step
    from assay.worker import main
    from assay.worker.processes.channel import ParentChannel
    from support.corpora import small_corpus
    from support.runs import run_folder

    ParentChannel.stop_on_signals = lambda self: None  # type: ignore[method-assign]

    def ask(name: str) -> Callable[[], object]:
        made = run_folder(folder / name, small_corpus(folder), {})
        requests, _ = os.pipe()
        channel = ParentChannel(made.events_file, os.open(os.devnull, os.O_WRONLY), requests, in_turns=False)
        return lambda: main._work(made, channel, None, "import")

    entered(ask("first"), take_step.__code__)
    return entered(ask("second"), take_step.__code__)


def estimate(folder: Path) -> set[tuple[str, str]]:
    """Count from `assay estimate demo` to its table."""
    verb("estimate", "demo")()
    return entered(verb("estimate", "demo"))


def recommend(folder: Path) -> set[tuple[str, str]]:
    """Count from `assay recommend demo --device t4` to its table."""
    verb("recommend", "demo", "--device", "t4")()
    return entered(verb("recommend", "demo", "--device", "t4"))


QUESTIONS = {"page": page, "train": train, "child": child, "estimate": estimate, "recommend": recommend}


def main(names: list[str]) -> None:
    """Print the numbers of files, functions and rooms that each question enters; ASSAY_DEBUG=1 names the files."""
    print(f"{'question':<12}{'files':>8}{'functions':>12}{'rooms':>8}")
    for name in names or QUESTIONS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ASSAY_HOME"] = folder
            found = QUESTIONS[name](Path(folder))
        files = {file for file, _ in found}
        rooms = {file.partition(os.sep)[0] for file in files}
        print(f"{name:<12}{len(files):>8}{len(found):>12}{len(rooms):>8}", flush=True)
        if os.environ.get("ASSAY_DEBUG"):
            print(*sorted(files), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
