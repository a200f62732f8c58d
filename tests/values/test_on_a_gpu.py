"""Value checks on a GPU: they run to their end for every kind of value, and need no more memory than the run."""

import gc
from pathlib import Path

import pytest
import torch

from assay.config import ResolvedRun
from assay.config.run import Spec
from assay.optimizations import resolve_run
from assay.values.check import check_values
from assay.values.recorded import Recorded
from support.random_data import RandomData
from support.runs import SHAPE, run_with
from support.steps import build_step
from values.recording import proof_of_values, record_steps

pytestmark = pytest.mark.gpu

STACKS = (
    "activation_checkpointing",
    "gradient_accumulation:micro_batches=2",
    "sdpa_attention:backend=efficient",
    "bf16_mixed+sdpa_attention:backend=flash",
    "bf16_mixed",
    "fp16_mixed",
    "bf16_full+fused_adamw",
    "fp16_full",
    "adamw_8bit",
)


def run_of(stack: str, dropout: float) -> ResolvedRun:
    model = SHAPE.model_copy(update={"dropout": dropout})
    run = run_with(*(Spec.parse(one) for one in stack.split("+")), model=model)
    return resolve_run(run.model_copy(update={"device": "cuda"}))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("stack", STACKS)
def test_a_check_comes_to_its_end(stack: str, dropout: float, tmp_path: Path) -> None:
    found = proof_of_values(run_of(stack, dropout), tmp_path)
    assert found.checked
    assert found.gradients > 0


@pytest.mark.device_values
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("stack", STACKS)
def test_an_honest_run_is_proven(stack: str, dropout: float, tmp_path: Path) -> None:
    found = proof_of_values(run_of(stack, dropout), tmp_path)
    assert found.verdict, found.failures
    assert not found.without_dropout


@pytest.mark.parametrize("stack", ["activation_checkpointing", "bf16_mixed+sdpa_attention:backend=flash"])
def test_references_need_no_more_memory_than_the_run(stack: str, tmp_path: Path) -> None:
    """Cached blocks stay, because a step before has them; what counts are bytes that tensors have at once."""
    model = SHAPE.model_copy(update={"n_embd": 128, "context_length": 256})
    run = run_with(*(Spec.parse(one) for one in stack.split("+")), model=model)
    training = run.training.model_copy(update={"batch_size": 16})
    run = resolve_run(run.model_copy(update={"device": "cuda", "training": training}))
    data = RandomData(run)
    torch.cuda.reset_peak_memory_stats()
    record_steps(build_step(run, data), run, tmp_path)
    gc.collect()
    of_run = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = check_values(Recorded(tmp_path), run, data, torch.device("cuda"))  # type: ignore[arg-type]
    assert found.checked
    assert torch.cuda.max_memory_allocated() <= of_run
