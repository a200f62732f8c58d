"""The same step on a CUDA device: trains like the CPU's, is counted by the device's own counters, and proves itself.

Tests without `device_values` run on an absent GPU as well.
"""

import gc
from pathlib import Path

import pytest
import torch

from assay.config import Run, Spec
from assay.config.run import Scalar
from assay.estimator import estimate
from assay.hardware import detect
from assay.instruments.memory.allocator_history import watch_step
from assay.instruments.memory.memory_pass import memory_pass
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Unavailable, check, optimizations_of, resolve, resolve_run
from assay.training.loop import read, take_step, train_step
from assay.training.probes import ActivationNorms
from assay.values.watch import UpdateWatch
from optimizations.mutations.harness import Corpus
from support.random_data import RandomData
from support.runs import ON_ONE_DEVICE, SHAPE, run_with
from support.steps import build_step, forget_tables, losses, traced

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


LOSSES = pytest.mark.device_values("losses are compared")
SCALED = pytest.mark.device_values("whether a loss was scaled is read from its value")


def on_cuda(*specs: Spec, **model: object) -> Run:
    shape = SHAPE.model_copy(update=model)
    return run_with(*specs, model=shape).model_copy(update={"device": "cuda"})


@LOSSES
def test_losses_are_the_cpus_up_to_the_order_of_summation() -> None:
    assert losses(on_cuda()) == pytest.approx(losses(run_with()), rel=1e-4)


_FIELDS: dict[str, dict[str, Scalar]] = {"deferred_metrics": {"every": 20}}
"""Fields that differ from the defaults: a plain step reads the figures of ten steps together as well."""


def _marked(name: str) -> object:
    return pytest.param(name, marks=SCALED) if name in ("fp16_mixed", "fp16_full") else name


@pytest.mark.parametrize("name", [_marked(one) for one in ON_ONE_DEVICE if one != "streaming"])
def test_every_optimization_is_proven(name: str) -> None:
    spec = resolve(Spec(name=name, fields=_FIELDS.get(name, {}))).spec()
    tied = name not in ("mup", "weight_tying")
    _expect_proven(on_cuda(spec, tie_embeddings=tied), RandomData)


def test_streamed_documents_are_proven(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Ten bottles of milk stand on the wall."}\n' * 40)
    _expect_proven(on_cuda(Spec(name="streaming", fields={"path": str(tmp_path)}), vocab_size=256), Corpus)


def _expect_proven(run: Run, data: type[RandomData]) -> None:
    (optimization,) = optimizations_of(run)
    try:
        optimization.check(run, detect())
    except Unavailable as reason:
        pytest.skip(str(reason))
    step = build_step(run, data(run))
    train_step(step, 0)
    with StepTracer(step) as tracer:
        taken = take_step(tracer.watch(), 1)
    (record,) = read(step, [taken])
    evidence = optimization.verify(tracer.trace(record.loss, record.tokens), run)
    assert evidence.verdict, evidence.observed


@LOSSES
@pytest.mark.parametrize("parameters", [False, True])
def test_an_update_on_the_host_is_the_devices_up_to_rounding(parameters: bool) -> None:
    offload = Spec(name="cpu_offload", fields={"parameters": parameters})
    assert losses(on_cuda(offload)) == pytest.approx(losses(on_cuda()), rel=1e-5)


@pytest.mark.parametrize("beside", [(), ("activation_checkpointing",)])
def test_a_device_without_weights_is_proven_and_holds_what_is_predicted(beside: tuple[str, ...]) -> None:
    run = on_cuda(*(Spec(name=one) for one in beside), Spec(name="cpu_offload", fields={"parameters": True}))
    others = watch_step(CUDA, lambda: None).peak.tensors_bytes  # of tests before, in the same process
    step = build_step(run)
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    (*_, optimization) = optimizations_of(run)
    evidence = optimization.verify(tracer.trace(record.loss, record.tokens), run)
    assert evidence.verdict, evidence.observed
    measured = memory_pass(CUDA, lambda: _train(step), 0).tensors_peak_bytes - others
    assert measured == pytest.approx(estimate(run, detect()).timeline.peak.nbytes, rel=0.01)


@pytest.mark.parametrize("stack", ["lora:base=nf4", "lora:base=nf4+bf16_mixed+activation_checkpointing"])
@pytest.mark.parametrize("model", [{}, {"position": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}])
def test_packed_weights_are_proven_and_take_what_is_predicted(stack: str, model: dict[str, object]) -> None:
    run = on_cuda(*(resolve(one).spec() for one in Spec.parse_stack(stack)), **model)
    run = run.model_copy(update={"training": run.training.model_copy(update={"read_every": 1})})
    forget_tables()
    step = build_step(run)
    probes = ActivationNorms(step)
    for index in range(2):
        train_step(step, index, probes)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.reset_peak_memory_stats()
    train_step(step, 2, probes)
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    del step, probes
    forget_tables()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    # What tests before left in this process is counted last, because a step may free some of it.
    others = torch.cuda.memory_stats().get("requested_bytes.all.current", 0)
    assert peak - others == estimate(run, detect()).timeline.requested.nbytes
    evidence = optimizations_of(run)[0].verify(traced(run), run)
    assert evidence.verdict, evidence.observed


@pytest.mark.parametrize("name", ["bf16_mixed", "fp8"])
def test_narrow_layers_keep_what_is_predicted(name: str) -> None:
    run = on_cuda(Spec(name=name))
    try:
        check(run, detect())
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert traced(run).memory.saved_total_bytes == estimate(run, detect()).timeline.saved_bytes


@LOSSES
def test_activations_come_back_from_the_host_as_they_went() -> None:
    assert losses(on_cuda(Spec(name="activation_offload"))) == losses(on_cuda())


@pytest.mark.parametrize("specs", [(), (Spec(name="deferred_metrics", fields={"every": 100}),)], ids=["plain", "later"])
def test_torch_finds_nothing_to_wait_for_in_a_step_whose_figures_are_read_later(specs: tuple[Spec, ...]) -> None:
    step = build_step(on_cuda(*specs))
    train_step(step, 0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        taken = [take_step(step, index) for index in (1, 2)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [record.step for record in read(step, taken)] == [1, 2]


def test_watching_updates_makes_the_host_wait_for_nothing_before_they_are_read() -> None:
    run = on_cuda(Spec(name="fused_adamw"))
    step = build_step(run)
    watch = UpdateWatch(resolve_run(run), step)
    take = watch.taking(take_step)
    read(step, [take(step, 0, None)])
    torch.cuda.set_sync_debug_mode("error")
    try:
        taken = [take(step, index, None) for index in (1, 2)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    watch.close()
    assert [record.step for record in read(step, taken)] == [1, 2]


def test_the_memory_pass_reads_the_devices_counters() -> None:
    step = build_step(on_cuda())
    for index in range(2):
        train_step(step, index)
    held = sum(parameter.nbytes for _, parameter in step.named_parameters())
    measured = memory_pass(CUDA, lambda: _train(step), 0)
    assert measured.reserved_peak_bytes is not None
    assert measured.reserved_peak_bytes >= measured.tensors_peak_bytes > 3 * held


def _train(step: object) -> None:
    train_step(step, 2)  # type: ignore[arg-type]
