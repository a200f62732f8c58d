"""Record the first steps of a run in this process and hold them against their references."""

from collections.abc import Callable
from pathlib import Path

import torch

from assay.config import Run, validate
from assay.config.run import OwnRows, ResolvedRun
from assay.optimizations import expected_of, resolve_run
from assay.records.evidence import ValueProof
from assay.step.program import Step
from assay.training.loop import read, take_step
from assay.values.check import check_values
from assay.values.masks import source_of_masks
from assay.values.recorded import Recorded
from assay.values.recorder import Part, StepRecorder
from support.random_data import RandomData
from support.steps import build_step

MODEL = """
import assay
import torch
from torch import nn

def batches(step, seed, rows):
    x = torch.randn(rows, 4) + 0.01 * step + 0.1 * (seed % 7)
    return x, x[:, :2].sin()

def build():
    return assay.OwnModel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)),
                          lambda model, x, y: (model(x) - y).square().mean(), batches)
"""


def record_steps(step: Step, run: Run, folder: Path, steps: int = 3, first: int = 0, part: Part = "beginning") -> None:
    """Do the steps of a built program from `first` on and record them."""
    torch.manual_seed(run.seed)
    expected = expected_of(run)
    masks = source_of_masks(run, expected, step.program.device)
    rounds_state = expected.rule.rounds_state
    recorder = StepRecorder(step, folder, first=first, rounds_state=rounds_state, masks=masks, part=part)
    for index in range(first, first + steps):
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
    return check_values(Recorded(folder), run, data, step.program.device)  # type: ignore[arg-type]


def own_run(tmp_path: Path, *techniques: str, text: str = MODEL) -> ResolvedRun:
    """A run of a user's own model and batches."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "mine.py").write_text(text)
    model = {"own": "mine.py:build", "own_folder": str(tmp_path), "vocab_size": 61, "context_length": 16}
    training = {"batch_size": 8, "steps": 5, "warmup_steps": 1}
    values = {"model": model, "training": training, "device": "cpu", "optimizations": list(techniques)}
    rows = OwnRows(targets=2, validation=False)
    return resolve_run(validate(values)).model_copy(update={"own_rows": rows})
