"""The value check of a user's own batches: the honest program passes, and rows of another kind are named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assay.records.evidence import ValueProof
from assay.step.program import MicroBatch, Step
from assay.values.check import Checker
from assay.values.recorded import Recorded
from support.random_data import RandomData
from support.steps import build_step
from values.recording import MODEL, own_run, proof_of_values, record_steps

Change = Callable[[list[MicroBatch]], list[MicroBatch]]


def proven(tmp_path: Path, *techniques: str, change: Callable[[Step], None] | None = None) -> ValueProof:
    return proof_of_values(own_run(tmp_path, *techniques), tmp_path / "values", change)


def fed(wanted: Callable[[Step], object]) -> Callable[[Step], None]:
    """Have a built step train on other rows: `wanted` makes a batch source of the step."""

    def change(step: Step) -> None:
        object.__setattr__(step, "program", replace(step.program, batches=wanted(step)))

    return change


@pytest.mark.parametrize(
    "techniques",
    [
        ("fused_adamw",),
        ("smaller_batch", "fused_adamw"),
        ("gradient_accumulation:micro_batches=4",),
        ("bf16_mixed",),
        ("bf16_full",),
        ("smaller_batch", "gradient_accumulation:micro_batches=2", "loader_workers:workers=1"),
    ],
)
def test_honest_rows_pass(tmp_path: Path, techniques: tuple[str, ...]) -> None:
    found = proven(tmp_path, *techniques)
    assert found.verdict, found.failures
    assert found.updates == 3


def test_later_checks_make_no_model_anew(tmp_path: Path) -> None:
    """The user's function makes a whole model, which may take seconds and all of its memory."""
    calls = tmp_path / "calls"
    text = MODEL.replace("def build():\n", f"def build():\n    open({str(calls)!r}, 'a').write('x')\n")
    run = own_run(tmp_path / "own", "fused_adamw", text=text)
    data = RandomData(run)
    step = build_step(run, data)
    record_steps(step, run, tmp_path / "beginning")
    record_steps(step, run, tmp_path / "middle", steps=1, first=3, part="middle")
    checker = Checker(run, data, step.program.device)  # type: ignore[arg-type]
    assert checker.check(Recorded(tmp_path / "beginning")).verdict
    before = calls.read_text()
    assert checker.check(Recorded(tmp_path / "middle")).replayed == 1
    assert calls.read_text() == before


MASKED = """
import assay
import torch
from torch import nn

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.kept = MASK

    def forward(self, x):
        mask = self.kept if self.kept is not None else torch.triu(torch.full((32, 32), float("-inf")), 1)
        x = self.up(x)
        return self.down(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])[:, 20]

def batches(step, seed, rows):
    x = 3 * torch.randn(rows, 32, 4)
    return x, x[:, 20, :2].sin()

def build():
    return assay.OwnModel(Masked(), lambda model, x, y: (model(x) - y).square().mean(), batches)
"""


@pytest.mark.parametrize("mask", ["None", 'torch.triu(torch.full((32, 32), float("-inf")), 1)'])
@pytest.mark.parametrize("technique", ["fused_adamw", "bf16_mixed", "gradient_accumulation:micro_batches=2"])
def test_a_model_with_a_mask_in_float32_is_proven(tmp_path: Path, technique: str, mask: str) -> None:
    run = own_run(tmp_path, technique, text=MASKED.replace("MASK\n", f"{mask}\n"))
    found = proof_of_values(run, tmp_path / "values")
    assert found.verdict, (found.failures, found.unchecked)


@pytest.mark.parametrize(
    ("technique", "proven"), [("fused_adamw", True), ("gradient_accumulation:micro_batches=2", False)]
)
def test_a_model_that_computes_something_else_in_float64_is_not_called_wrong(
    tmp_path: Path, technique: str, proven: bool
) -> None:
    other = "(model(x) * (1.1 if model(x).dtype is torch.float64 else 1.0) - y)"
    run = own_run(tmp_path, technique, text=MODEL.replace("(model(x) - y)", other))
    found = proof_of_values(run, tmp_path / "values")
    assert not found.failures
    assert found.verdict is proven
    assert proven or "computes another loss in float64" in found.unchecked


def _other_seed(step: Step) -> object:
    from assay.model.own_model import batches_of

    own = batches_of(step.parts)
    assert own is not None
    other = replace(own, run=own.run.model_copy(update={"seed": 1}))
    return lambda index, share: [other.at(index, share)]


MUTANTS = {
    "wrong step": (
        lambda step: lambda index, share: step.program.batches(index + 1, share),
        "the inputs of row 0 in step 0",
    ),
    "stands still": (lambda step: lambda index, share: step.program.batches(0, share), "the inputs of row 0 in step 1"),
    "wrong seed": (_other_seed, "the inputs of row 0 in step 0"),
    "rows swapped": (
        lambda step: lambda index, share: [(x.flip(0), y.flip(0)) for x, y in step.program.batches(index, share)],
        "the inputs of row 0 in step 0",
    ),
    "targets shifted": (
        lambda step: lambda index, share: [(x, y.roll(1, 0)) for x, y in step.program.batches(index, share)],
        "the targets of row 0 in step 0",
    ),
    "rows lost": (
        lambda step: lambda index, share: [(x[:4], y[:4]) for x, y in step.program.batches(index, share)],
        "the inputs of step 0 are",
    ),
    "rounded": (
        lambda step: lambda index, share: [(x.half().float(), y) for x, y in step.program.batches(index, share)],
        "the inputs of row 0 in step 0",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_other_rows_are_named(tmp_path: Path, name: str) -> None:
    wanted, says = MUTANTS[name]

    def honest(step: Step) -> object:
        return wanted(replace(step))  # the step as it is now, before its source is replaced

    found = proven(tmp_path, "fused_adamw", change=fed(honest))
    assert not found.verdict
    assert says in found.failures[0]


def test_the_first_half_is_no_smaller_batch(tmp_path: Path) -> None:
    def first_half(step: Step) -> object:
        return lambda index, share: [
            (x[:4], y[:4])
            for x, y in _whole(step)(index, (0, 1))  # every second row is asked for
        ]

    def _whole(step: Step) -> Callable[..., list[MicroBatch]]:
        from assay.model.own_model import batches_of

        own = batches_of(step.parts)
        assert own is not None
        return lambda index, share: [own.at(index, share)]

    found = proven(tmp_path, "smaller_batch", change=fed(first_half))
    assert "the inputs of row 1 in step 0" in found.failures[0]


def test_a_wrong_gradient_of_a_lossy_technique_is_still_named(tmp_path: Path) -> None:
    def scale_one(step: Step) -> None:
        (weight,) = (one for name, one in step.named_parameters() if name == "model.0.weight")
        weight.register_hook(lambda gradient: gradient * 1.3)

    found = proven(tmp_path, "bf16_mixed", change=scale_one)
    assert "the gradient of model.0.weight in step" in " ".join(found.failures)
