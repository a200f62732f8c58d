"""Techniques that change the model: each is the model that is configured so, in ledger, losses and checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config import ModelConfig, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.model.weights import load_model, write_safetensors
from assay.optimizations import Conflict, check, resolve, trained_model
from assay.training.checkpoints.state import weights_at_rest
from assay.training.loop import train_step
from support.runs import SHAPE, run_with, without
from support.steps import build_step, losses, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def assert_as_configured(spec: Spec, others: tuple[Spec, ...] = (), shape: ModelConfig = SHAPE, **changes: Any) -> None:
    """The technique predicts and trains what the model with these changes does, and the model without them does not."""
    here = run_with(spec, *others, model=shape)
    there = run_with(*others, model=shape.model_copy(update=changes))
    assert trained_model(here) == there.model
    assert estimate(here, CPU).to_dict() == estimate(there, CPU).to_dict()
    assert losses(here) == losses(there)
    assert losses(here) != losses(without(here, [one.name for one in others]))


def assert_proven_only_where_applied(spec: Spec, observed: str) -> None:
    """The trace proves the technique with these words, and the trace of the plain program does not."""
    run = run_with(spec)
    evidence = resolve(spec).verify(traced(run), run)
    assert (evidence.verdict, evidence.observed) == (True, observed)
    assert not resolve(spec).verify(traced(without(run)), run).verdict


def assert_read_back(spec: Spec, folder: Path) -> None:
    """A checkpoint of the technique's run has the logits of the model that was trained."""
    run = run_with(spec)
    step = build_step(run)
    train_step(step, 0)
    write_safetensors(weights_at_rest(step), folder / "model.safetensors")
    ids, (part,) = torch.arange(8).unsqueeze(0), step.parts
    assert torch.equal(load_model(folder, trained_model(run)).logits(ids), part.eval().logits(ids))


def assert_refused(spec: Spec, says: str, *others: Spec, ranks: int = 1, **model: Any) -> None:
    """The run is refused with these words."""
    with pytest.raises(Conflict, match=says):
        check(run_with(spec, *others, model=SHAPE.model_copy(update=model), ranks=ranks), CPU)
