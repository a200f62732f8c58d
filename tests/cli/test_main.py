"""The frame of the command line: quick, quiet, and every error one sentence with its exit code."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from assay.cli import main
from assay.errors import StorageError
from cli.conftest import TINY, Assay
from support.children import FAKE_WORKER, LAUNCH, gone
from support.imports import HEAVY, imported

PYDANTIC = {"pydantic"}
"""typer's own, once a verb has parameters to read."""


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [(["--help"], HEAVY | PYDANTIC), (["--version"], HEAVY), (["train", "--help"], HEAVY), (["runs", "--help"], HEAVY)],
)
def test_help_imports_nothing_heavy(words: list[str], unwanted: set[str]) -> None:
    seen = imported("-m", "assay.cli.main", *words)
    assert "typer" in seen
    assert not seen & unwanted


def test_help_answers_at_once() -> None:
    """In processor time, so that a busy machine does not decide it."""
    command = [sys.executable, "-m", "assay.cli.main", "--help"]
    spent = []
    for _ in range(5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        spent.append(usage.ru_utime + usage.ru_stime)
    assert min(spent) < 0.3


def listed(screen: str) -> dict[str, dict[str, str]]:
    """The descriptions of the verbs, by group and verb."""
    found: dict[str, dict[str, str]] = {}
    for line in screen.splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            found[line[:-1].lower()] = {}
        elif found and line:
            verb, description = line.split(maxsplit=1)
            found[list(found)[-1]][verb] = description
    return found


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_has_every_verb_in_its_group_with_a_short_whole_sentence(assay: Assay, words: list[str]) -> None:
    said = assay(*words)
    groups = {group: verbs for group, verbs in listed(said.out).items() if group != "options"}
    assert (said.code, said.err) == (0, "")
    assert list(groups) == ["start", "predict", "measure", "keep"]
    assert {group: tuple(verbs) for group, verbs in groups.items()} == main.GROUPS
    sentences = [sentence for verbs in groups.values() for sentence in verbs.values()]
    assert [one for one in sentences if len(one) > 45 or not re.fullmatch(r"[A-Z].*[^.]\.", one)] == []


def test_the_first_screen_fits_a_terminal_and_answers_five_questions(assay: Assay) -> None:
    lines = assay().out.splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    asked = [line.split("?", 1)[1].strip() for line in lines if "?" in line]
    assert len(asked) == 5
    assert {command.split()[0] for command in asked} == {"assay"}
    assert len({command.split()[1] for command in asked}) == 5
    assert any("docs/tutorial.md" in line for line in lines)


@pytest.mark.parametrize("words", [["runs"], ["data"]])
def test_a_group_without_a_verb_shows_its_help(assay: Assay, words: list[str]) -> None:
    said = assay(*words)
    assert said.code == 2
    assert (said.out + said.err).startswith("Usage:")


def test_listing_and_training_import_no_torch(tmp_path: Path) -> None:
    code = "from assay.cli.main import app; app(['runs', 'ls'])"
    seen = imported("-c", f"import os; os.environ['ASSAY_HOME'] = {str(tmp_path)!r}; {code}")
    assert "torch" not in seen
    seen = imported("-c", "import assay; assay.train; import assay.launch.spawn, assay.launch.prepare, assay.data")
    assert "assay" in seen
    assert "torch" not in seen


def test_importing_the_package_is_light() -> None:
    assert not imported("-c", "import assay") & (HEAVY | PYDANTIC)


def test_a_room_does_not_hide_the_function_of_its_name() -> None:
    import assay
    import assay.estimator

    assert callable(assay.estimate)
    assert callable(assay.train)
    assert set(dir(assay)) == {
        *(
            "OwnModel",
            "accuracy",
            "anatomy",
            "calibrate",
            "capacity",
            "compare",
            "configure",
            "estimate",
            "gradients",
            "inference",
            "measure",
            "plan",
            "recommend",
            "runs",
            "study",
            "trace",
            "token_budget",
            "train",
            "training_cost",
        ),
        "__version__",
    }
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = assay.trian


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*args: object, **keywords: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (StorageError("the disk is full"), 1, "the disk is full"),
        (KeyError("n_layer"), 1, "KeyError: 'n_layer' (a fault in assay; `assay --traceback …` shows where)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_that_is_raised_becomes_a_sentence(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, expected: str
) -> None:
    monkeypatch.setattr("assay.api.train", failing(error))
    said = assay("train")
    assert (said.code, said.sentence()) == (code, expected)


def test_a_traceback_is_shown_when_asked_for(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.api.train", failing(KeyError("n_layer")))
    said = assay("--traceback", "train")
    assert said.code == 1
    assert "Traceback" in said.err
    assert "in failing" in said.err or "in fail" in said.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["trian"], "Did you mean 'train'"), (["runs", "lss"], "No such command"), (["runs", "show"], "Missing argument")],
)
def test_wrong_words_are_a_sentence(assay: Assay, words: list[str], expected: str) -> None:
    said = assay(*words)
    assert said.code == 2
    assert expected in said.sentence()


def test_a_closed_pipe_is_no_error() -> None:
    code = f"{sys.executable} -m assay.cli.main --help | true"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def ctrl_c(
    tmp_path: Path, corpus: str, moods: str, times: int, number: signal.Signals = signal.SIGINT
) -> tuple[int, str, Path]:
    """Train with the stand-in, in the background as a shell does it, interrupt it, and see what is left."""
    home = tmp_path / "home"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "|".join(FAKE_WORKER), "train", corpus, *TINY, "training.steps=400"],
        env={**os.environ, "ASSAY_HOME": str(home), "FAKE": moods},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    deadline = time.monotonic() + 30
    while not list(home.glob("runs/*/events.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(times):
        time.sleep(0.6)
        process.send_signal(number)
    out, err = process.communicate(timeout=30)
    (folder,) = (home / "runs").iterdir()
    return process.returncode, out + err, folder


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_ctrl_c_leaves_a_run_to_resume(tmp_path: Path, corpus: str, number: signal.Signals) -> None:
    code, said, folder = ctrl_c(tmp_path, corpus, "slow", 1, number)
    assert code == 130
    assert "interrupted after" in said
    assert f"assay train --resume {folder.name}" in said
    assert list((folder / "checkpoints").iterdir())


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path, corpus: str) -> None:
    code, said, folder = ctrl_c(tmp_path, corpus, "stubborn3", times=2)
    assert code == 130
    assert "interrupted before it recorded its result" in said
    import json

    assert gone(json.loads((folder / "process.json").read_bytes())["pid"])


def test_a_file_with_a_verb_is_registered() -> None:
    """A verb that is forgotten in the list would exist and not be found."""
    for path in set(Path(main.__file__).parent.glob("*.py")) - {Path(main.__file__)}:
        text = path.read_text()
        verb = f"\ndef {path.stem}(" in text or "\napp = typer.Typer(" in text
        assert not verb or path.stem in main.VERBS, path


def test_python_m_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "assay", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"assay {version('assay')}\n"
