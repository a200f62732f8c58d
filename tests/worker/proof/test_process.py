"""The reference process: it waits for a word, answers part by part, and never outlives its run."""

from pathlib import Path

import pytest

from assay.records.evidence import ValueProof
from assay.store.run_folder import RunFolder
from assay.worker.proof.process import ANSWER, ReferenceProcess, values_folder
from support.runs import run_with, specs_of

pytestmark = pytest.mark.usefixtures("forked")


def _begun(place: Path) -> tuple[RunFolder, ReferenceProcess]:
    folder = RunFolder(place / "run")
    folder.path.mkdir()
    return folder, ReferenceProcess(folder)


def _answer(process: ReferenceProcess, part: str = "beginning-0") -> ValueProof:
    assert process.wait(30.0)
    return ValueProof.model_validate_json(process.answer(part))


def test_only_runs_with_optimizations_that_are_checked_have_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    fused = run_with(*specs_of(["sdpa_attention"]))
    training = fused.training.model_copy(update={"check_values": False})
    assert ReferenceProcess.of(folder, run_with()) is None
    assert ReferenceProcess.of(folder, fused.model_copy(update={"training": training})) is None
    process = ReferenceProcess.of(folder, fused)
    assert process is not None
    process.end()


def test_one_that_ended_before_it_was_asked_says_why(tmp_path: Path) -> None:
    _, process = _begun(tmp_path)  # there is no run whose programs it could build
    try:
        assert process.wait(30.0)
        process.ask("beginning-0")
        found = _answer(process)
    finally:
        process.end()
    assert "run.json" in found.broken
    assert not found.verdict


def test_an_answer_of_an_earlier_process_is_not_read(tmp_path: Path) -> None:
    folder, first = _begun(tmp_path)
    first.end()
    place = values_folder(folder) / "beginning-0"
    place.mkdir()
    (place / ANSWER).write_text(ValueProof(verdict=True, steps=3).model_dump_json())
    second = ReferenceProcess(folder)
    second.end()
    assert _answer(second).broken


@pytest.mark.parametrize("text", ["", '{"verdict": true, "used": null}', "not JSON"])
def test_an_answer_that_cannot_be_read_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    answers = "import sys; sys.stdin.readline(); print('.', end='', flush=True); sys.stdin.readline()"
    monkeypatch.setattr("assay.worker.proof.process.COMMAND", ("python3", "-c", answers))
    folder, process = _begun(tmp_path)
    place = values_folder(folder) / "beginning-0"
    place.mkdir()
    (place / ANSWER).write_text(text)
    process.ask("beginning-0")
    found = _answer(process)
    assert "cannot be read" in found.broken
    assert not found.verdict


def test_it_ends_when_its_run_does(tmp_path: Path) -> None:
    _, process = _begun(tmp_path)
    assert process._process.stdin is not None
    process._process.stdin.close()
    assert process.wait(30.0)
    process.end()
