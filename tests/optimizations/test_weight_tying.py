"""One weight in place of two: the same run and the same ledger as a model that is configured so."""

from pathlib import Path

import pytest
import torch

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve, resolve_run, trained_model
from support.runs import SHAPE, UNTIED, run_with, without
from support.steps import build_step, losses, traced

TYING = Spec(name="weight_tying")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
STACKS = [(), (Spec(name="bf16_mixed"),), (Spec(name="sdpa_attention"), Spec(name="chunked_cross_entropy"))]


@pytest.mark.parametrize("others", STACKS, ids=lambda stack: "+".join(spec.name for spec in stack) or "alone")
def test_it_is_predicted_and_trained_as_a_model_that_is_configured_so(others: tuple[Spec, ...]) -> None:
    here, there = run_with(TYING, *others, model=UNTIED), run_with(*others)
    assert estimate(here, CPU).to_dict() == estimate(there, CPU).to_dict()
    assert losses(here) == losses(there)
    assert losses(here) != losses(run_with(*others, model=UNTIED))


def test_weight_gradient_and_state_of_the_projection_are_gone() -> None:
    plain, tied = (traced(run_with(*specs, model=UNTIED)) for specs in ((), (TYING,)))
    projection = 4 * SHAPE.vocabulary * SHAPE.n_embd
    assert plain.memory.parameter_bytes - tied.memory.parameter_bytes == projection
    assert plain.memory.gradient_bytes - tied.memory.gradient_bytes == projection
    assert plain.memory.optimizer_state_bytes - tied.memory.optimizer_state_bytes == 2 * projection + 4


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    run = run_with(TYING, model=UNTIED)
    evidence = resolve(TYING).verify(traced(run), run)
    assert evidence.verdict
    assert evidence.observed == "1 storage shared by embedding and projection, 0 bytes in a separate projection"
    assert not resolve(TYING).verify(traced(without(run)), run).verdict


def test_a_trained_model_is_read_as_a_tied_one(tmp_path: Path) -> None:
    from assay.model.weights import load_model, write_safetensors
    from assay.training.checkpoints.state import weights_at_rest

    run = run_with(TYING, model=UNTIED)
    step = build_step(run)
    write_safetensors(weights_at_rest(step), tmp_path / "model.safetensors")
    ids, (part,) = torch.arange(8).unsqueeze(0), step.parts
    model = load_model(tmp_path, trained_model(run))
    assert model.config == SHAPE
    assert torch.equal(model.logits(ids), part.logits(ids))


def test_where_there_is_nothing_to_tie_it_is_refused() -> None:
    with pytest.raises(Conflict, match="one weight already; set"):
        resolve(TYING).check(run_with(TYING), CPU)
    started = UNTIED.model_copy(update={"init_from": "somewhere"})
    with pytest.raises(Conflict, match="would discard the output projection"):
        resolve(TYING).check(run_with(TYING, model=started), CPU)
    both = run_with(model=UNTIED).model_copy(update={"optimizations": (TYING, Spec(name="pipeline_parallel"))})
    with pytest.raises(Conflict, match="not proven with pipeline_parallel"):
        check(resolve_run(both.model_copy(update={"ranks": 2})), CPU)
