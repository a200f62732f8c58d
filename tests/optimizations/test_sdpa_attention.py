"""Fused attention: the same result, no scores kept, and never the fallback unnoticed."""

import pytest

from assay.config import Spec
from assay.errors import UsageError
from assay.estimate import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Unavailable, resolve
from optimizations.laboratory import SHAPE, run_with, traced

SDPA = Spec(name="sdpa_attention")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def test_the_probabilities_are_no_longer_kept() -> None:
    plain, fused = (estimate(run_with(*specs), CPU) for specs in ((), (SDPA,)))
    rows, heads, length = 4, SHAPE.n_head, SHAPE.context_length
    probabilities = SHAPE.n_layer * 4 * rows * heads * length * length
    row_sums = SHAPE.n_layer * 4 * rows * heads * length
    mask = length * length
    assert plain.timeline.saved_bytes - fused.timeline.saved_bytes == probabilities - row_sums + mask


def test_dropout_on_a_cpu_is_refused_because_the_kernel_would_fall_back() -> None:
    run = run_with(SDPA, model=SHAPE.model_copy(update={"dropout": 0.1}))
    with pytest.raises(Unavailable, match="no fused kernel on a CPU"):
        resolve(SDPA).check(run, CPU)
    gpu = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})
    resolve(SDPA).check(run.model_copy(update={"device": "cuda"}), gpu)


def test_a_fallback_to_unfused_mathematics_is_caught() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    run = run_with(SDPA)
    with sdpa_kernel(SDPBackend.MATH):
        evidence = resolve(SDPA).verify(traced(run), run)
    assert not evidence.verdict
    assert evidence.observed.startswith("0 of 4 attention layers in a fused kernel")


def test_dropout_on_a_cpu_leaves_nothing_in_the_runs_folder_of_the_command_line() -> None:
    with pytest.raises(UsageError):
        estimate(run_with(SDPA, model=SHAPE.model_copy(update={"dropout": 0.1})), CPU)
