"""A step taken apart: every operator once, in its class and module, with its FLOPs, and in its order."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from assay.config import ModelConfig, Run, Spec
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.dissection import Dissector, anatomy, operators
from assay.instruments.memory.memory_pass import live_tensors
from assay.instruments.memory.storage_ledger import StorageLedger
from assay.records.anatomy import BETWEEN, CLASSES, UPDATE, Anatomy, Part, Sum, together
from assay.report.anatomy import trace_of
from assay.step.compiled import Captures
from assay.step.program import Step
from assay.training.loop import train_step
from support.runs import SHAPE, VARIANTS, run_with, without
from support.steps import build_step, traced
from support.traces import nest

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
CHECKPOINTING = Spec(name="activation_checkpointing")
STACKS = {
    "baseline": (),
    "checkpointing": (CHECKPOINTING,),
    "sdpa and accumulation": (Spec(name="sdpa_attention"), Spec(name="gradient_accumulation")),
    "bf16 and checkpointing": (Spec(name="bf16_mixed"), CHECKPOINTING),
}

_NOT_REPEATING = ("sdpa_attention", "gradient_accumulation", "bf16_mixed")
"""What runs again is compared with the trace."""


def apart(run: Run) -> tuple[Part, ...]:
    step = build_step(run)
    train_step(step, 0)
    with Dissector(step) as dissector:
        train_step(dissector.watch(), 1)
    return dissector.parts()


def flops(parts: tuple[Part, ...], module: str, phase: str) -> int:
    return sum(part.flops for part in parts if part.module == module and part.phase == phase)


@pytest.mark.parametrize("specs", STACKS.values(), ids=list(STACKS))
def test_flops_and_bytes_are_the_traces_and_the_ledgers(specs: tuple[Spec, ...]) -> None:
    run = run_with(*specs)
    parts, operations = apart(run), traced(run).operations
    for kind in CLASSES:
        for figure in ("flops", "bytes"):
            ours = sum(getattr(part, figure) for part in parts if part.operation_class == kind)
            assert ours == sum(getattr(one, figure) for one in operations if one.operation_class == kind), kind
    for phase in ("forward", "backward", "recompute", "update"):
        assert sum(one.flops for one in parts if one.phase == phase) == sum(
            one.flops for one in operations if one.phase == phase
        )
    again = sum(part.flops for part in parts if part.phase == "recompute")
    assert sum(part.flops for part in parts) - again == estimate(without(run, _NOT_REPEATING), MACHINE).step_flops


@pytest.mark.parametrize("variant", VARIANTS)
def test_backward_has_twice_the_products_of_forward_in_every_module(variant: str) -> None:
    model = VARIANTS[variant]
    parts = apart(run_with(model=model))
    multiplying = {part.module for part in parts if part.flops}
    assert not multiplying & {BETWEEN, UPDATE}
    assert {name.rpartition(".")[2] for name in multiplying} >= {"qkv", "core", "down", "projection"}
    for module in multiplying:
        assert flops(parts, module, "backward") == 2 * flops(parts, module, "forward") > 0, module


def test_operators_that_a_checkpoint_repeats_are_its_own_modules() -> None:
    parts = apart(run_with(CHECKPOINTING))
    for layer in range(SHAPE.n_layer):
        for module in ("attention.qkv", "attention.core", "attention.projection", "mlp.up"):
            name = f"blocks.{layer}.{module}"
            assert flops(parts, name, "recompute") == flops(parts, name, "forward") > 0
        assert flops(parts, f"blocks.{layer}.mlp.down", "recompute") == 0
    assert not any(part.phase == "recompute" for part in parts if part.module.startswith(("head", "embedding")))


@pytest.mark.parametrize("policy", ["attention", "matmuls"])
def test_operators_that_selective_checkpointing_repeats_are_its_own_modules(policy: str) -> None:
    parts = apart(run_with(Spec(name="selective_checkpointing", fields={"policy": policy})))
    again = {part.module for part in parts if part.phase == "recompute" and part.operation_class != "movement"}
    cores = {f"blocks.{layer}.attention.core" for layer in range(SHAPE.n_layer)}
    assert again >= cores
    assert BETWEEN not in {part.module for part in parts if part.phase == "recompute"}
    if policy == "attention":
        assert again == cores
        assert all(flops(parts, core, "recompute") == flops(parts, core, "forward") // 2 > 0 for core in cores)


def test_operators_that_a_block_itself_repeats_are_the_blocks() -> None:
    parts = apart(run_with(CHECKPOINTING))
    own = {part.module for part in parts if part.phase == "recompute" and part.module.count(".") < 2}
    assert own == {f"blocks.{layer}" for layer in range(SHAPE.n_layer)}


def test_little_is_between_modules() -> None:
    between = [part for part in apart(run_with()) if part.module == BETWEEN]
    # The loss over the tokens, its gradient of one, and the reading of both; where embeddings are tied, their sum.
    assert sum(part.count for part in between) < 12
    assert sum(part.bytes for part in between) < 200


def test_watching_changes_no_bit() -> None:
    def train(watched: bool) -> tuple[list[float], list[torch.Tensor]]:
        step = build_step(run_with(CHECKPOINTING))
        losses = [train_step(step, 0).loss]
        with Dissector(step) as dissector:
            losses.append(train_step(dissector.watch() if watched else step, 1).loss)
        return [*losses, train_step(step, 2).loss], [parameter.detach() for _, parameter in step.named_parameters()]

    plain, watched = train(False), train(True)
    assert plain[0] == watched[0]
    assert all(map(torch.equal, plain[1], watched[1]))


def test_sums_by_class_and_by_module_are_the_whole() -> None:
    found = anatomy(build_step(run_with()), train_step)
    for sums in (found.by_class(), found.by_module(), found.by_module_and_class()):
        assert sum(one.count for one in sums.values()) == found.whole.count
        assert sum(one.seconds for one in sums.values()) == pytest.approx(found.whole.seconds)
    assert list(found.by_class()) == [kind for kind in CLASSES if kind != "communication"]
    assert "blocks.*.mlp.up" in found.by_module()
    assert found.by_module()[UPDATE].seconds > 0
    assert found.step_seconds > 0 < found.watched_seconds


def test_a_part_has_its_least_time() -> None:
    times = iter([3.0, 1.0, 2.0, 4.0, 5.0])
    part = Part(module="head", phase="forward", operation_class="movement", count=1, seconds=0, flops=0, bytes=8)
    from assay.instruments.dissection import _least

    (least,) = _least([(part.model_copy(update={"seconds": seconds}),) for seconds in times])
    assert least == part.model_copy(update={"seconds": 1.0})


def test_blocks_are_taken_together() -> None:
    assert together("blocks.11.mlp") == "blocks.*.mlp"
    assert together("head") == "head"
    parts = [
        Part(module=f"blocks.{at}", phase="update", operation_class="movement", count=1, seconds=2, flops=3, bytes=4)
        for at in (0, 1)
    ]
    found = Anatomy(parts=tuple(parts), step_seconds=1, watched_seconds=1)
    assert found.by_module() == {"blocks.*": Sum(count=2, seconds=4, flops=6, bytes=8)}


def test_compiled_code_is_refused() -> None:
    step = build_step(run_with())
    step = replace(step, program=replace(step.program, witnesses=(Captures(),)))
    with pytest.raises(UsageError, match="leave compilation out"):
        anatomy(step, train_step)


def test_no_module_class_is_unknown() -> None:
    model = ModelConfig.model_validate({**SHAPE.model_dump(), "n_expert": 4})
    assert {part.operation_class for part in apart(run_with(model=model))} <= set(CLASSES)


def begun(*specs: Spec) -> Step:
    step = build_step(run_with(*specs))
    train_step(step, 0)
    return step


@pytest.mark.parametrize("specs", STACKS.values(), ids=list(STACKS))
def test_operators_are_those_of_the_anatomy_in_their_order(specs: tuple[Spec, ...]) -> None:
    step = begun(*specs)
    found = operators(step, train_step, 1)
    with Dissector(step) as dissector:
        train_step(dissector.watch(), 1)
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in found:
        counts[one.module, one.phase, one.operation_class] += 1
    assert counts == {(part.module, part.phase, part.operation_class): part.count for part in dissector.parts()}
    ends = [one.begin_seconds + one.seconds for one in found]
    assert found[0].begin_seconds == 0
    assert all(end <= one.begin_seconds for end, one in zip(ends, found[1:], strict=False))


@pytest.mark.parametrize("specs", STACKS.values(), ids=list(STACKS))
def test_the_highest_of_the_bytes_alive_is_the_ledgers_peak(specs: tuple[Spec, ...]) -> None:
    step = begun(*specs)
    with StorageLedger() as ledger:
        ledger.begin(step.parts, {}, live_tensors(torch.device("cpu")))
        train_step(step, 1)
    peak = ledger.peak().nbytes
    assert max(one.alive_bytes or 0 for one in operators(step, train_step, 1)) == peak


def test_a_real_step_is_a_trace_whose_slices_nest() -> None:
    found = operators(begun(*STACKS["bf16 and checkpointing"]), train_step, 1)
    made = trace_of(Anatomy(parts=(), step_seconds=1.0, watched_seconds=1.0, operators=found))
    slices = [one for one in made["traceEvents"] if one["ph"] == "X"]
    assert nest(slices)
    assert {one["name"] for one in slices if one["cat"] == "phase"} == {"forward", "backward", "recompute", "update"}
