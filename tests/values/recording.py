"""Record the first steps of a run in this process and hold them against their references."""

from collections.abc import Callable
from pathlib import Path

import torch

from assay.config import Run
from assay.optimizations import expected_of
from assay.records.evidence import ValueProof
from assay.step.program import Step
from assay.training.loop import read, take_step
from assay.values.check import check_values
from assay.values.recorded import Recorded
from assay.values.recorder import StepRecorder
from support.corpora import RandomData
from support.steps import CPU, build_step


def record_steps(step: Step, run: Run, folder: Path, steps: int = 3) -> None:
    """Do the first steps of a built program and record them."""
    torch.manual_seed(run.seed)
    recorder = StepRecorder(step, folder, rounds_state=expected_of(run).rule.rounds_state)
    if run.model.dropout > 0 and not expected_of(run).same_noise:
        recorder.probe()
    for index in range(steps):
        watched = recorder.watch(step, index)
        with recorder.hooked():
            taken = take_step(watched, index)
        (record,) = read(watched, [taken])
        recorder.stepped(index, record.loss, record.log_gradient_norm, record.learning_rate)
    recorder.close()


def proof_of_values(run: Run, folder: Path, change: Callable[[Step], None] | None = None) -> ValueProof:
    """Build, record and check; `change` may spoil the built step."""
    data = RandomData(run)
    step = build_step(run, data)
    if change is not None:
        change(step)
    record_steps(step, run, folder)
    return check_values(Recorded(folder), run, data, CPU)  # type: ignore[arg-type]
