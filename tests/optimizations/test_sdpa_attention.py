"""Fused attention: the same result, no scores kept, and never the fallback unnoticed."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.config import Spec
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Unavailable, check, optimizations_of, resolve
from support.peaks import assert_peak
from support.runs import FOUR, SHAPE, drawn_runs, run_with
from support.steps import build_step, saved_bytes, traced

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
    assert evidence.observed.startswith("0 of 4 calls of attention in a fused kernel")


def test_dropout_on_a_cpu_leaves_nothing_in_the_runs_folder_of_the_command_line() -> None:
    with pytest.raises(UsageError):
        estimate(run_with(SDPA, model=SHAPE.model_copy(update={"dropout": 0.1})), CPU)


def backend(name: str) -> Spec:
    return Spec(name="sdpa_attention", fields={"backend": name})


@pytest.mark.parametrize("name", ["flash", "math"])
def test_a_forced_kernel_is_the_one_that_runs(name: str) -> None:
    run = run_with(backend(name))
    evidence = resolve(backend(name)).verify(traced(run), run)
    assert evidence.verdict, evidence.observed


@pytest.mark.parametrize(("asked", "got"), [("math", "flash"), ("flash", "math"), ("auto", "math")])
def test_another_kernel_than_the_one_asked_for_is_caught(asked: str, got: str) -> None:
    assert not resolve(backend(asked)).verify(traced(run_with(backend(got))), run_with(backend(asked))).verdict


def test_hand_coded_attention_is_not_torchs_unfused_one() -> None:
    assert not resolve(backend("math")).verify(traced(run_with()), run_with(backend("math"))).verdict


@pytest.mark.parametrize("name", ["efficient", "cudnn"])
def test_a_gpus_kernels_are_refused_on_a_cpu(name: str) -> None:
    with pytest.raises(Unavailable, match="needs a CUDA device; on a CPU use flash or math"):
        resolve(backend(name)).check(run_with(), CPU)


def test_kernels_of_16_bits_are_refused_in_float32_and_on_old_gpus() -> None:
    def on(capability: tuple[int, int], *specs: Spec, name: str) -> None:
        found = Accelerator(name="any", memory_bytes=2**36, compute_capability=capability)
        run = run_with(backend(name), *specs).model_copy(update={"device": "cuda"})
        check(run, CPU.model_copy(update={"accelerators": (found,)}))

    with pytest.raises(Conflict, match="computes in 16 bits only; add bf16_mixed"):
        on((9, 0), name="flash")
    with pytest.raises(Unavailable, match="on any use backend=efficient"):
        on((7, 5), Spec(name="bf16_mixed"), name="cudnn")
    on((9, 0), Spec(name="bf16_mixed"), name="flash")
    on((7, 5), name="efficient")


@pytest.mark.parametrize(
    "others", [(), (FOUR[1],), FOUR[1:], (Spec(name="bf16_full"),)], ids=lambda stack: "+".join(map(str, stack))
)
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_bytes_saved_by_unfused_attention_are_the_measured_ones(others: tuple[Spec, ...], data: st.DataObject) -> None:
    run = data.draw(drawn_runs((backend("math"), *others)))
    assert estimate(run, CPU).timeline.saved_bytes == saved_bytes(build_step(run))


def test_the_peak_of_unfused_attention_is_the_measured_one() -> None:
    assert_peak("sdpa_attention:backend=math")


def test_no_mask_is_made_for_a_kernel() -> None:
    plain, fused = (estimate(run_with(*specs), CPU).cost.tables for specs in ((), (SDPA,)))
    assert [one.name for one in plain] == ["mask"]
    assert fused == ()


@pytest.mark.parametrize("name", ["bf16_mixed", "bf16_full"])
@pytest.mark.parametrize("again", [(), (FOUR[2],)], ids=["once", "again"])
def test_products_of_unfused_attention_stay_wide_and_are_told_apart(name: str, again: tuple[Spec, ...]) -> None:
    run = run_with(backend("math"), Spec(name=name), *again)
    precision = next(one for one in optimizations_of(run) if one.name() == name)
    trace = traced(run)
    evidence = precision.verify(trace, run)
    assert evidence.verdict, evidence.observed
    # Two and four back in every layer, and two once more in every other one.
    assert f"and {(7 if again else 6) * SHAPE.n_layer} of unfused attention in float32" in evidence.observed
    # One more product in float32, and one less that is allowed to be.
    wide = [one for one in trace.operations if one.dtype == "float32" and one.operation_class == "contraction"]
    more = wide[0].model_copy(update={"count": wide[0].count + 1})
    rest = tuple(one for one in trace.operations if one is not wide[0])
    assert not precision.verify(trace.model_copy(update={"operations": (*rest, more)}), run).verdict
    fewer = tuple(one for one in trace.operations if "_safe_softmax" not in one.name)
    assert not precision.verify(trace.model_copy(update={"operations": fewer}), run).verdict


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("variant", [{}, {"dropout": 0.1}, {"position": "rotary", "qk_norm": True}], ids=len)
def test_heads_of_one_sequence_are_merged_without_a_copy(variant: dict[str, object], batch: int) -> None:
    cut = [Spec(name="gradient_accumulation", fields={"micro_batches": batch})] if batch > 1 else []
    run = run_with(backend("math"), *cut, model=SHAPE.model_copy(update=variant))
    run = run.model_copy(update={"training": run.training.model_copy(update={"batch_size": batch})})
    assert estimate(run, CPU).timeline.saved_bytes == traced(run).memory.saved_total_bytes
