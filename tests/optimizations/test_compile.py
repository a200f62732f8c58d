"""Compilation: the trace reads compiled code without turning it off, and a compile that fell back is caught.

All of it takes one compiled model of one layer; what composes is marked slow.
"""

import gc
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch

from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine, detect
from assay.hardware.devices import absent_machine
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, Unavailable, Unpredicted, check, optimizations_of, resolve
from assay.records.trace import Trace
from assay.step.compiled import Captures
from assay.step.program import Step
from assay.training.divergence import first_not_finite
from assay.training.loop import train_step
from assay.training.probes import ActivationNorms
from support.runs import SHAPE, run_with, without
from support.steps import build_step, measured_peak, micro_batches
from support.traces import altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
COMPILE = Spec(name="compile")
ONE_LAYER = SHAPE.model_copy(update={"n_layer": 1})
RUN = run_with(COMPILE, model=ONE_LAYER)
WHOLE = run_with(Spec(name="compile", fields={"regions": "model"}), model=ONE_LAYER)
PLAIN = without(RUN)
MODELS: dict[str, dict[str, object]] = {
    "plain": {},
    "no bias": {"bias": False},
    "dropout": {"dropout": 0.1},
    "post": {"norm_position": "post", "qk_norm": True},
    "llama": {"norm": "rms", "activation": "swiglu", "position": "rotary", "bias": False, "n_kv_head": 2},
    "grouped": {"norm": "rms", "position": "rotary", "bias": False, "n_kv_head": 2, "qk_norm": True},
    "wide": {"vocab_size": 4000},
}
PREDICTED = ("", "sdpa_attention", "bf16_mixed", "activation_checkpointing", "optimizer_in_backward")


@dataclass(frozen=True)
class Trained:
    """A few steps of one model, some of them traced."""

    step: Step
    losses: list[float]
    traces: dict[int, Trace]


def trained(run: Run, steps: int = 3, watched: Sequence[int] = (1,)) -> Trained:
    torch.manual_seed(run.seed)
    step, losses, traces = build_step(run), [], {}
    for index in range(steps):
        if index in watched:
            with StepTracer(step) as tracer:
                record = train_step(tracer.watch(), index)
            traces[index] = tracer.trace(record.loss, record.tokens)
        else:
            record = train_step(step, index)
        losses.append(record.loss)
    return Trained(step, losses, traces)


@pytest.fixture(scope="module", autouse=True)
def _can_compile() -> Iterator[None]:
    try:
        resolve(COMPILE).check(RUN, detect())
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield
    torch.compiler.reset()


@pytest.fixture(scope="module")
def compiled() -> Trained:
    return trained(RUN)


@pytest.fixture(scope="module")
def whole() -> Trained:
    return trained(WHOLE, watched=(1,))


@pytest.fixture(scope="module")
def plain() -> Trained:
    return trained(PLAIN)


def test_it_is_proven_with_every_call_and_no_break(compiled: Trained) -> None:
    evidence = resolve(COMPILE).verify(compiled.traces[1], RUN)
    assert evidence.verdict, evidence.observed
    assert "6 graphs with" in evidence.observed
    assert "3 of 3 forward and 3 of 3 backward calls compiled; 0 graph breaks, 0 matmuls outside" in evidence.observed


def test_the_traced_step_is_the_compiled_one_to_the_last_bit(compiled: Trained) -> None:
    unwatched = trained(RUN, watched=())
    assert compiled.losses == unwatched.losses
    for (name, one), (_, other) in zip(
        compiled.step.named_parameters(), unwatched.step.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_it_trains_as_the_baseline_does(compiled: Trained, plain: Trained) -> None:
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)


def test_the_graphs_hold_the_baselines_products_and_flops(compiled: Trained, plain: Trained) -> None:
    ours, theirs = compiled.traces[1], plain.traces[1]
    for phase in ("forward", "backward"):
        assert ours.contractions(phase=phase) == theirs.contractions(phase=phase) > 0
    assert ours.contractions(phase="recompute") == 0
    assert sum(one.flops for one in ours.operations) == sum(one.flops for one in theirs.operations)
    assert any(category.startswith("compiled code") for category in ours.memory.saved_bytes)


def test_it_is_refuted_where_it_was_not_applied(plain: Trained) -> None:
    evidence = resolve(COMPILE).verify(plain.traces[1], RUN)
    assert not evidence.verdict
    assert "0 of 3 forward" in evidence.observed


def test_a_compile_that_is_turned_off_is_caught(compiled: Trained) -> None:
    with torch.compiler.set_stance("force_eager"):
        fallen = trained(RUN, steps=2).traces[1]
    evidence = resolve(COMPILE).verify(fallen, RUN)
    assert not evidence.verdict
    assert "0 of 3 forward and 0 of 3 backward" in evidence.observed


def test_a_region_that_fell_back_is_caught(compiled: Trained) -> None:
    step = compiled.step
    (block,) = (module for name, module in step.parts[0].named_modules() if name == "blocks.0")
    ours = block.forward
    block.forward = type(block).forward.__get__(block)
    try:
        with StepTracer(step) as tracer:
            record = train_step(tracer.watch(), 3)
    finally:
        block.forward = ours
    evidence = resolve(COMPILE).verify(tracer.trace(record.loss, record.tokens), RUN)
    assert not evidence.verdict
    assert "2 of 3 forward and 2 of 3 backward" in evidence.observed
    assert "18 matmuls outside" in evidence.observed


def test_a_graph_break_is_caught(compiled: Trained) -> None:
    broken = altered(compiled.traces[1], graph_breaks=1)
    assert not resolve(COMPILE).verify(broken, RUN).verdict


def test_code_that_fuses_nothing_is_caught(compiled: Trained) -> None:
    graphs = tuple(one.model_copy(update={"kernels": 0}) for one in compiled.traces[1].graphs.compiled)
    assert not resolve(COMPILE).verify(altered(compiled.traces[1], compiled=graphs), RUN).verdict


def test_a_tensor_that_is_not_finite_is_named_inside_a_region(compiled: Trained) -> None:
    step = compiled.step
    weight = dict(step.named_parameters())["blocks.0.mlp.up.weight"]
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.fill_(3e38)
        assert first_not_finite(step, micro_batches(step)) == "the output of blocks.0.mlp.up"
    finally:
        with torch.no_grad():
            weight.copy_(before)


@pytest.mark.slow
def test_a_model_is_one_region_and_trains_as_the_baseline_does(whole: Trained) -> None:
    evidence = resolve(WHOLE.optimizations[0]).verify(whole.traces[1], WHOLE)
    assert evidence.verdict, evidence.observed
    assert "2 graphs with" in evidence.observed
    assert "1 of 1 forward and 1 of 1 backward calls compiled; 0 graph breaks, 0 matmuls outside" in evidence.observed
    assert whole.losses == pytest.approx(trained(without(WHOLE), watched=()).losses, rel=1e-5)


def test_a_region_of_each_block_does_not_prove_one_of_the_model(compiled: Trained) -> None:
    evidence = resolve(WHOLE.optimizations[0]).verify(compiled.traces[1], WHOLE)
    assert not evidence.verdict
    assert "3 of 1 forward and 3 of 1 backward" in evidence.observed


def test_blocks_within_one_region_report_their_norms_from_code_that_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.fx.GraphModule] = []
    monkeypatch.setattr(Captures, "_backend", lambda self, module, inputs: (seen.append(module), module)[1])
    parts = Spec(name="gradient_accumulation", fields={"micro_batches": 4})
    run = run_with(*WHOLE.optimizations, parts)
    step, eager = build_step(run), build_step(without(run))
    probes, others = ActivationNorms(step), ActivationNorms(eager)
    for index in range(3):
        found = train_step(step, index, probes).activation_norms
        assert found == pytest.approx(train_step(eager, index, others).activation_norms, rel=1e-5)
    with StepTracer(step) as tracer:  # whose hooks on blocks make no other code
        train_step(tracer.watch(), 3, probes)
    assert len(seen) == 1
    probes.remove()
    assert train_step(step, 4, probes).activation_norms == ()


@pytest.mark.parametrize("regions", ["blocks", "model"])
def test_a_compiler_that_goes_on_keeps_no_weights(regions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Captures, "_backend", lambda self, module, inputs: module)
    step = build_step(run_with(Spec(name="compile", fields={"regions": regions}), model=ONE_LAYER))
    probes = ActivationNorms(step)
    train_step(step, 0, probes)
    kept = [weakref.ref(parameter) for _, parameter in step.named_parameters()]
    del step, probes
    gc.collect()
    assert [one for one in kept if one() is not None] == []


@pytest.mark.parametrize("other", ["activation_checkpointing", "optimizer_in_backward", "chunked_cross_entropy"])
def test_a_technique_that_needs_regions_by_block_refuses_the_whole(other: str) -> None:
    run = run_with(*WHOLE.optimizations, Spec(name=other), model=ONE_LAYER)
    unclipped = run.training.model_copy(update={"gradient_clip": 0.0})
    with pytest.raises(Conflict, match=f"{other} .*; use compile:regions=blocks"):
        check(run.model_copy(update={"training": unclipped}), CPU)


def test_memory_that_one_region_keeps_is_not_predicted() -> None:
    with pytest.raises(Unpredicted, match="a model that is compiled as one region"):
        estimate(WHOLE, CPU)


def test_memory_that_regions_keep_is_predicted_to_the_byte(compiled: Trained) -> None:
    assert estimate(RUN, CPU).timeline.saved_bytes == compiled.traces[1].memory.saved_total_bytes


def test_norms_of_grouped_queries_are_predicted_on_a_cpu() -> None:
    """Their scratch has the name of the copied queries, and a search for these once went round and round."""
    few, many = (
        run_with(COMPILE, model=SHAPE.model_copy(update={**MODELS["grouped"], "n_head": 4, "n_layer": layers}))
        for layers in (1, 2)
    )
    plain, compiled = (estimate(one, CPU).timeline.peak.nbytes for one in (without(many), many))
    assert estimate(few, CPU).timeline.peak.nbytes < compiled < plain


@pytest.mark.slow
@pytest.mark.parametrize("others", PREDICTED)
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_predicted(model: str, others: str) -> None:
    """Within the bounds of `docs/measured/peaks.md`; most are within a tenth of a per cent."""
    if model == "dropout" and others == "sdpa_attention":
        pytest.skip("has no fused kernel on a CPU")
    larger = {"n_layer": 3, "n_head": 4, "n_embd": 128, "context_length": 64} | MODELS[model]
    run = run_with(COMPILE, *map(Spec.parse, filter(None, others.split("+"))), model=SHAPE.model_copy(update=larger))
    torch.compiler.reset()
    _, measured, _ = measured_peak(run)
    assert estimate(run, CPU).timeline.peak.nbytes == pytest.approx(measured, rel=0.05)


def test_without_a_compiler_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(Unavailable, match="needs a C\\+\\+ compiler, and '/nowhere/c\\+\\+' was not found"):
        check(RUN, CPU)


def test_without_triton_a_gpu_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    machine = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})
    with pytest.raises(Unavailable, match="install triton"):
        check(RUN.model_copy(update={"device": "cuda"}), machine)


def test_an_absent_gpu_needs_none_of_its_software(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run = RUN.model_copy(update={"device": "cuda"})
    assert estimate(run, absent_machine("h200")).timeline.requested.nbytes > 64 * 2**20


def test_a_combination_that_was_not_tried_is_refused() -> None:
    with pytest.raises(Conflict, match="dense models only"):
        check(run_with(COMPILE, model=SHAPE.model_copy(update={"n_expert": 4})), CPU)
    ranks = Run(model=SHAPE, ranks=2, device="cpu", optimizations=(COMPILE, Spec(name="data_parallel")))
    with pytest.raises(Conflict, match="on one device only"):
        check(ranks, CPU)


@pytest.mark.slow
@pytest.mark.parametrize(
    "others",
    [
        "activation_checkpointing",
        "sdpa_attention",
        "gradient_accumulation:micro_batches=2",
        "bf16_mixed",
        "sdpa_attention+bf16_mixed+activation_checkpointing+gradient_accumulation",
    ],
)
def test_in_a_stack_all_are_proven_and_the_loss_is_the_same(others: str) -> None:
    run = run_with(COMPILE, *map(Spec.parse, others.split("+")), model=ONE_LAYER)
    found = trained(run)
    for one in optimizations_of(run):
        evidence = one.verify(found.traces[1], run)
        assert evidence.verdict, evidence.observed
    names = [spec.name for spec in run.optimizations if spec.name != "compile"]
    tolerance = 2e-3 if "bf16_mixed" in names else 1e-5
    assert found.losses == pytest.approx(trained(without(run, names), watched=()).losses, rel=tolerance)


@pytest.mark.slow
def test_dropout_draws_the_noise_that_it_draws_without() -> None:
    model = ONE_LAYER.model_copy(update={"dropout": 0.2})
    run = run_with(COMPILE, model=model)
    assert trained(run).losses == pytest.approx(trained(without(run)).losses, rel=1e-5)


@pytest.mark.slow
def test_blocks_share_their_code_however_many_there_are() -> None:
    run = run_with(COMPILE, model=SHAPE.model_copy(update={"n_layer": 12}))
    graphs = trained(run).traces[1].graphs.compiled
    assert len(graphs) == 6
    assert sorted(one.calls for one in graphs) == [1, 1, 1, 1, 12, 12]
    assert run.model.n_layer + 2 == sum(one.calls for one in graphs if one.backward)


@pytest.mark.slow
@pytest.mark.parametrize(
    "again", ["activation_checkpointing", "selective_checkpointing", "selective_checkpointing:policy=matmuls"]
)
def test_blocks_that_run_again_share_their_code_and_what_they_keep_is_predicted(again: str) -> None:
    run = run_with(COMPILE, Spec.parse(again), model=SHAPE.model_copy(update={"n_layer": 12}))
    trace = trained(run).traces[1]
    assert sorted(one.calls for one in trace.graphs.compiled) == [1, 1, 1, 1, 12, 12]
    assert estimate(run, CPU).timeline.saved_bytes == trace.memory.saved_total_bytes
