"""The account of a step, held against counts made by other means: formulas, the autograd graph, the allocator."""

import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

from assay.config import ModelConfig, Run
from assay.config.run import Spec
from assay.instruments.memory.tensor_peak import Changes
from assay.instruments.step_trace import StepTracer
from assay.records.trace import Trace
from assay.step.compiled import CompiledCall, Graph
from assay.step.program import MicroBatch, Step
from assay.training.gradients import summed_loss
from assay.training.loop import train_step
from support.runs import SHAPE, VARIANTS, run_with
from support.steps import build_step, micro_batches, traced

SDPA = Spec(name="sdpa_attention", fields={})
BF16 = Spec(name="bf16_mixed", fields={})
CHECKPOINTING = Spec(name="activation_checkpointing", fields={})
LAYERS = SHAPE.n_layer


def accumulate(parts: int) -> Spec:
    return Spec(name="gradient_accumulation", fields={"micro_batches": parts})


def graph_bytes(step: Step) -> int:
    """Slow and independent: walk the autograd graph and read what each node saved, holding it all."""
    loss = summed_loss(step, micro_batches(step)[0])
    parameters = {parameter.untyped_storage().data_ptr() for _, parameter in step.named_parameters()}
    held: dict[int, Tensor] = {}
    pending, seen = [loss.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending.extend(below for below, _ in node.next_functions)
        for value in (getattr(node, name) for name in dir(node) if name.startswith("_saved_")):
            for tensor in value if isinstance(value, tuple) else (value,):
                # A Python number that autograd wrapped: float64, as nothing of ours is.
                if isinstance(tensor, Tensor) and not (tensor.dim() == 0 and tensor.dtype == torch.float64):
                    held[tensor.untyped_storage().data_ptr()] = tensor
    return sum(one.untyped_storage().nbytes() for address, one in held.items() if address not in parameters)


@pytest.mark.parametrize(
    "specs", [(), (SDPA,), (BF16,), (SDPA, BF16)], ids=lambda s: "+".join(o.name for o in s) or "-"
)
@pytest.mark.parametrize("model", VARIANTS.values(), ids=VARIANTS.keys())
def test_saved_bytes_are_those_of_the_graph(model: ModelConfig, specs: tuple[Spec, ...]) -> None:
    if SDPA in specs and model.dropout:
        pytest.skip("refused on a CPU")
    run = run_with(*specs, model=model)
    assert traced(run).memory.saved_total_bytes == graph_bytes(build_step(run))


def allocator_bytes(run: Run, trace: Trace) -> int:
    """What the forward leaves behind at the allocator, less the loss, plus what was saved but there before.

    Less also the factor of the scores written out, a Python number: autograd wraps it in 8 bytes, no hook sees it.
    """
    step = build_step(run)
    train_step(step, 0)
    rows = micro_batches(step, 1)[0]
    gc.collect()  # or what earlier tests left would be given back inside
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = summed_loss(step, rows)
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    changes = Changes(profiler.profiler.kineto_results.experimental_event_tree(), "cpu").found
    left = sum(change.nbytes for change in changes)
    before = sum(size for category, size in trace.memory.saved_bytes.items() if category.startswith("inputs "))
    numbers = 0 if SDPA.name in {spec.name for spec in run.optimizations} else 8 * LAYERS
    return left - loss.untyped_storage().nbytes() - numbers + before


@pytest.mark.parametrize("specs", [(), (BF16,), (SDPA, BF16)], ids=["fp32", "bf16", "sdpa_bf16"])
def test_checkpointed_bytes_are_those_of_the_allocator(specs: tuple[Spec, ...]) -> None:
    run = run_with(CHECKPOINTING, *specs)
    trace = traced(run)
    assert trace.memory.saved_total_bytes == allocator_bytes(run, trace)
    assert trace.memory.saved_total_bytes < 0.5 * traced(run_with(*specs)).memory.saved_total_bytes


def test_micro_batches_do_not_add_up() -> None:
    half = run_with(accumulate(2))
    trace = traced(half)
    assert trace.forwards == 2
    alone = run_with()
    alone = alone.model_copy(update={"training": alone.training.model_copy(update={"batch_size": 2})})
    # Ids and targets of a micro-batch are views of the whole batch's.
    rest_of_batch = 2 * 2 * SHAPE.context_length * 8
    assert trace.memory.saved_total_bytes == traced(alone).memory.saved_total_bytes + rest_of_batch


def test_matmuls_are_counted() -> None:
    forward = 6 * LAYERS + 1
    trace = traced(run_with())
    assert trace.contractions("forward") == forward
    assert trace.contractions("backward") == 2 * forward
    assert trace.contractions("recompute") == trace.contractions("update") == 0
    again = traced(run_with(CHECKPOINTING))
    assert again.contractions("forward") == forward
    assert again.contractions("backward") == 2 * forward
    assert again.contractions("recompute") == 5 * LAYERS, "all but the down projection, which nothing waits for"
    assert traced(run_with(accumulate(4))).contractions("forward") == 4 * forward


def test_flops_are_those_of_the_formula() -> None:
    model, tokens = SHAPE, 4 * SHAPE.context_length
    weights = LAYERS * 12 * model.n_embd**2 + model.vocabulary * model.n_embd
    attention = LAYERS * 2 * model.context_length * model.n_embd
    trace = traced(run_with())
    flops = {phase: sum(o.flops for o in trace.operations if o.phase == phase) for phase in ("forward", "backward")}
    assert flops == {"forward": 2 * tokens * (weights + attention), "backward": 4 * tokens * (weights + attention)}


def test_phases() -> None:
    trace = traced(run_with(CHECKPOINTING))
    assert trace.count("aten.gelu", phase="recompute") == LAYERS
    assert trace.count("aten.gelu_backward", phase="backward") == LAYERS
    assert trace.count("aten.gelu_backward") == LAYERS
    assert trace.count("aten.sqrt") == trace.count("aten.sqrt", phase="update") > 0
    assert trace.count("aten.nll_loss_forward") == trace.count("aten.nll_loss_forward", phase="forward") == 1


def test_dtypes_of_matmuls() -> None:
    assert traced(run_with()).contractions(dtype="float32") == 3 * (6 * LAYERS + 1)
    low = traced(run_with(BF16))
    assert low.contractions(dtype="bfloat16") == low.contractions() == 3 * (6 * LAYERS + 1)
    assert any(category.startswith("weight copies bfloat16") for category in low.memory.saved_bytes)


def test_compiled_code_is_tallied_like_dispatched_operators() -> None:
    """On a GPU with TF32 allowed: the format of products, FLOPs and sizes are the same by both ways."""
    recorder = StepTracer(build_step(run_with()))._recorder
    with FakeTensorMode():
        left, right = (torch.empty(shape, device="cuda") for shape in ((3, 4), (4, 5)))
        calls = [
            CompiledCall(operator, arguments, {}, operator(*arguments), again=False)
            for operator, arguments in (
                (torch.ops.aten.mm.default, (left, right)),
                (torch.ops.aten.exp.default, (left,)),
            )
        ]
        torch.set_float32_matmul_precision("high")
        try:
            for call in calls:
                recorder._record(call, "forward")
            with recorder.graphs.watch(Graph(backward=True, calls=tuple(calls), kernels=0)):
                pass
        finally:
            torch.set_float32_matmul_precision("highest")
    forward, backward = (
        {one.name: one for one in recorder.operations() if one.phase == phase} for phase in ("forward", "backward")
    )
    assert {name: one.dtype for name, one in forward.items()} == {"aten.mm": "tf32", "aten.exp": "float32"}
    assert forward["aten.mm"].flops == 2 * 3 * 4 * 5
    for name, one in backward.items():
        moved = forward[name].bytes if name == "aten.mm" else 0  # what a fused kernel moves is not known
        assert one == forward[name].model_copy(update={"phase": "backward", "bytes": moved})
    assert backward.keys() == forward.keys()


def test_state_is_counted_by_storage() -> None:
    step = build_step(run_with())
    trace = traced(run_with())
    parameters = sum(parameter.numel() for _, parameter in step.named_parameters())
    tensors = len(step.named_parameters())
    assert trace.memory.parameter_bytes == trace.memory.gradient_bytes == 4 * parameters
    assert trace.memory.optimizer_state_bytes == 8 * parameters + 4 * tensors
    assert set(trace.shared_parameters) == {("embedding.token.weight", "head.projection.weight")}
    assert traced(run_with(model=VARIANTS["untied"])).shared_parameters == ()
    assert trace.batch.targets == 4 * SHAPE.context_length


@pytest.mark.parametrize("specs", [(), (BF16, CHECKPOINTING, accumulate(2))], ids=["baseline", "stack"])
def test_watching_changes_no_bit(specs: tuple[Spec, ...]) -> None:
    def train(watched: bool) -> tuple[list[float], list[Tensor]]:
        torch.manual_seed(0)
        step = build_step(run_with(*specs, model=VARIANTS["dropout"]))
        losses = [train_step(step, 0).loss]
        if watched:
            with StepTracer(step) as tracer:
                losses.append(train_step(tracer.watch(), 1).loss)
        else:
            losses.append(train_step(step, 1).loss)
        return [*losses, train_step(step, 2).loss], [parameter.detach() for _, parameter in step.named_parameters()]

    plain, watched = train(False), train(True)
    assert plain[0] == watched[0]
    assert all(map(torch.equal, plain[1], watched[1]))


def test_readings_by_the_host_are_counted_by_phase() -> None:
    step = build_step(run_with())
    train_step(step, 0)
    inner = step.program.gradients

    def chatty(of: Step, rows: Sequence[MicroBatch], tokens: int) -> Tensor:
        loss = inner(of, rows, tokens)
        loss.item()
        rows[0][0].nonzero()
        return loss

    step = replace(step, program=replace(step.program, gradients=chatty))
    quiet = traced(run_with()).synchronizations
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    loud = tracer.trace(record.loss, record.tokens).synchronizations
    assert loud.get("forward", 0) == quiet.get("forward", 0) + 2
    assert loud["update"] == quiet["update"] > 0


def test_a_step_that_was_not_watched_has_no_account() -> None:
    step = build_step(run_with())
    with StepTracer(step) as tracer:
        train_step(step, 0)
    with pytest.raises(RuntimeError, match="no step was traced"):
        tracer.trace(0.0, 1)
