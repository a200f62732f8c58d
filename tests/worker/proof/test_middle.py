"""The proof of a run's middle: a fault in a replayed step, in any update, or beside the tensors ends the run."""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.data import Prepared
from assay.optimizations import forget, search
from assay.records.evidence import ValueProof
from assay.records.run import RunResult
from assay.records.status import Status
from assay.report.comparison.wording import value_check
from assay.store import history
from assay.store.run_folder import RunFolder
from assay.values.recorder import StepRecorder
from assay.values.replayed_steps import affordable, draw_steps
from assay.worker.proof.middle import COSTS
from assay.worker.proof.process import ReferenceProcess
from support.runs import run_folder
from support.workers import ended

pytestmark = pytest.mark.usefixtures("forked")

STEPS, RECORDED = 34, 3
MIDDLE = range(RECORDED, STEPS)
SPOILT = """
from dataclasses import replace
from assay.optimizations.{name} import {kind}

class Spoilt({kind}):
    def apply(self, program, run):
        after = super().apply(program, run)
        inner = after.{seam}
        done = [-1]

        def spoilt(step, *given):
            done[0] += 1
            {body}

        return replace(after, {seam}=spoilt)
"""
LOUDER = """
            summed = inner(step, *given)
            if done[0] in {steps}:
                [one.grad.mul_(1.5) for name, one in step.named_parameters() if ".mlp." in name]
            return summed
"""


@pytest.fixture(autouse=True)
def _as_many_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model this small replays as many steps as any other, and not as few as its checks would take on a machine."""
    monkeypatch.setattr("assay.values.replayed_steps._DEAR", float("inf"))


def spoilt(place: Path, corpus: Prepared, source: str, **training: Any) -> tuple[RunFolder, RunResult]:
    """A run of a technique of this source; the seam counts its calls, one a step."""
    (place / "extra").mkdir()
    (place / "extra" / "spoilt.py").write_text(source)
    added = search(place / "extra")
    try:
        folder = run_folder(place / "run", corpus, {"steps": STEPS, **training}, optimizations="spoilt")
        return folder, ended(folder)
    finally:
        forget(added)


def louder(name: str, kind: str, steps: object) -> str:
    return SPOILT.format(name=name, kind=kind, seam="gradients", body=LOUDER.format(steps=steps).strip())


def places(kind: str, seed: int = 0) -> tuple[int, ...]:
    """The steps that such a run replays."""
    return draw_steps(MIDDLE, affordable(STEPS, len(MIDDLE), COSTS[kind]), seed)


@pytest.mark.parametrize(("name", "kind", "near"), [("lion", "Lion", "exact"), ("bf16_mixed", "Bf16Mixed", "lossy")])
def test_a_fault_in_a_replayed_step_ends_the_run(
    corpus: Prepared, tmp_path: Path, name: str, kind: str, near: str
) -> None:
    at = places(near)[1]
    _, result = spoilt(tmp_path, corpus, louder(name, kind, [at]))
    assert result.status is Status.WRONG_VALUES
    assert result.steps == at + 1
    assert "gradient" in (result.reason or "")


def test_a_resume_does_not_prove_the_steps_before_it(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": STEPS}, optimizations="lion")
    honest = ReferenceProcess.answer

    def lost(process: ReferenceProcess, part: str) -> str:
        return ValueProof(broken="killed").model_dump_json() if part.startswith("middle") else honest(process, part)

    with monkeypatch.context() as context:
        context.setattr(ReferenceProcess, "answer", lost)
        failed = ended(folder)
    assert (failed.status, failed.steps) == (Status.FAILED, places("exact")[0] + 1)
    resumed = ended(folder)
    assert (resumed.status, resumed.steps) == (Status.DONE, STEPS)
    assert resumed.values is not None
    assert (resumed.values.verdict, resumed.values.since) == (True, failed.steps)
    assert resumed.unproven == f"{failed.steps} steps of an earlier process were not compared"
    assert f" of its middle since step {failed.steps} " in value_check(resumed.values)


@pytest.mark.parametrize("stack", ["lora:rank=2", "lora:rank=2,base=nf4"])
def test_frozen_weights_of_a_resumed_run_are_held_against_its_checkpoint(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    """The folder that the run began with is not read again."""
    plain = run_folder(tmp_path / "plain", corpus, {"steps": 4})
    assert ended(plain).status is Status.DONE
    first = {"init_from": str(plain.checkpoints / "step-00000004")}
    folder = run_folder(tmp_path / "run", corpus, {"steps": STEPS}, optimizations=stack, model=first)
    with monkeypatch.context() as context:
        context.setattr(ReferenceProcess, "answer", lambda *_: ValueProof(broken="killed").model_dump_json())
        failed = ended(folder)
    assert failed.status is Status.FAILED
    assert 0 < failed.steps < STEPS
    shutil.rmtree(plain.path)
    resumed = ended(folder)
    assert (resumed.status, resumed.steps, resumed.reason) == (Status.DONE, STEPS, None)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_without_a_middle_is_proven(corpus: Prepared, tmp_path: Path, steps: int) -> None:
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": steps}, optimizations="lion"))
    assert (result.status, result.unproven) == (Status.DONE, "")


def test_evaluations_that_were_not_repeated_are_counted(corpus: Prepared, tmp_path: Path) -> None:
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 8, "eval_interval": 2}, optimizations="lion"))
    assert result.values is not None
    assert (result.values.evaluations, result.values.all_evaluations) == (2, 4)
    assert ", 2 of 4 evaluations repeated" in value_check(result.values)


def test_recording_after_a_step_is_not_taken_from_its_seconds(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = StepRecorder._weights

    def slowly(recorder: StepRecorder, step: int) -> None:
        time.sleep(0.05)  # many times as long as a step
        written(recorder, step)

    monkeypatch.setattr(StepRecorder, "_weights", slowly)
    folder = run_folder(tmp_path / "run", corpus, {"steps": 6}, optimizations="lion")
    assert ended(folder).status is Status.DONE
    assert all(one.seconds > 0 for one in history.steps(folder.events()))


def test_a_fault_between_the_replayed_steps_is_missed_as_often_as_the_record_says(
    corpus: Prepared, tmp_path: Path
) -> None:
    at = next(step for step in MIDDLE if step not in places("exact"))
    _, result = spoilt(tmp_path, corpus, louder("lion", "Lion", [at]))
    assert result.status is Status.DONE
    assert result.values is not None
    assert (result.values.replayed, result.values.middle_steps) == (len(places("exact")), len(MIDDLE))
    assert result.values.steps == RECORDED + len(places("exact")) + 1
    assert (result.values.replay_baseline_steps or 0.0) > 1
    assert result.values.watched_updates == STEPS - 1  # the traced step is not watched
    assert result.values.chance_of_missing(1) == pytest.approx((1 - 1 / len(MIDDLE)) ** len(places("exact")))


def test_an_infinite_error_of_the_first_steps_has_a_way_through_every_record(corpus: Prepared, tmp_path: Path) -> None:
    folder, result = spoilt(tmp_path, corpus, louder("lion", "Lion", list(range(8))))
    assert result.status is Status.WRONG_VALUES
    assert result.values is not None
    assert (result.values.verdict, result.values.used) == (False, float("inf"))
    folder.write_result(result)
    assert folder.result() == result
    assert json.loads(result.model_dump_json())["values"]["used"] == "Infinity"
    assert history.values(folder.events()) == result.values


def test_an_update_that_is_left_out_in_the_middle_is_seen(corpus: Prepared, tmp_path: Path) -> None:
    body = """
            if done[0] in range(9, 17):
                norm = step.program.gradient_norm(step)
                for _, one in step.named_parameters():
                    one.grad = None
                return norm
            return inner(step, *given)
"""
    source = SPOILT.format(name="bf16_mixed", kind="Bf16Mixed", seam="update", body=body.strip())
    _, result = spoilt(tmp_path, corpus, source)
    assert result.status is Status.WRONG_VALUES
    assert (result.reason or "").startswith("step 9 made no update of ")


def _no_memory_left(place: str) -> int:
    print("no memory left", file=sys.stderr)
    return 1


@pytest.mark.parametrize("forks", [True, False])
def test_a_reference_process_that_ends_leaves_no_proof_behind(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    monkeypatch.setattr("assay.worker.proof.process.CAN_FORK_WITH_THREADS", forks)
    monkeypatch.setattr("assay.worker.proof.reference.main", _no_memory_left)
    if not forks:
        ends = ("python3", "-c", "raise SystemExit('no memory left')")
        monkeypatch.setattr("assay.worker.proof.process.COMMAND", ends)
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 12}, optimizations="lion"))
    assert result.status is Status.FAILED
    assert (result.reason or "").startswith(
        "the values could not be checked: the reference process ended with code 1: no memory left"
    )
    assert result.values is not None
    assert not result.values.verdict


ASIDE = """
            import numpy as np

            kept = [np.ones({elements}, np.float32)]
            summed = inner(step, *given)
            kept.clear()
            return summed
"""


def test_memory_that_is_kept_outside_of_tensors_is_seen(corpus: Prepared, tmp_path: Path) -> None:
    body = ASIDE.format(elements=2**18).strip()
    source = SPOILT.format(name="activation_checkpointing", kind="ActivationCheckpointing", seam="gradients", body=body)
    _, result = spoilt(tmp_path, corpus, source, measure_memory=True)
    assert result.status is Status.NO_EFFECT
    assert "memory is kept outside of tensors" in (result.reason or "")
