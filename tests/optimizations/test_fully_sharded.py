"""Fully sharded: what its own bfloat16 excludes and promises of the loss, and where there is nothing to offload."""

import pytest

from assay.config import ModelConfig, ResolvedRun, Spec, TrainingConfig
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Numerics, Unavailable, check, resolve
from assay.optimizations.fully_sharded import FullySharded
from assay.records.trace import HeldParameter, TracedCommunication
from support.runs import SHAPE
from support.traces import EMPTY, altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
GPUS = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),) * 2})
LOW = "fully_sharded:mixed_precision=true"


def stacked(text: str, model: ModelConfig = SHAPE, ranks: int = 2) -> ResolvedRun:
    training = TrainingConfig(batch_size=16)
    return ResolvedRun(
        model=model, training=training, ranks=ranks, device="cpu", optimizations=tuple(map(Spec.parse, text.split("+")))
    )


@pytest.mark.parametrize(
    ("text", "changes", "ranks", "says"),
    [
        (f"{LOW}+bf16_mixed", {}, 2, "both choose the precision"),
        (f"{LOW}+pipeline_parallel", {}, 4, "communicate in float32"),
        (LOW, {"n_expert": 4}, 2, "must stay in float32"),
    ],
)
def test_a_technique_that_its_bfloat16_excludes_is_refused(
    text: str, changes: dict[str, int], ranks: int, says: str
) -> None:
    model = SHAPE.model_copy(update=changes)
    check(stacked(text.replace(LOW, "fully_sharded"), model, ranks), CPU)
    with pytest.raises(Conflict, match=says):
        check(stacked(text, model, ranks), CPU)


def test_a_backward_in_pieces_gathers_no_weights_for_each() -> None:
    text = "fully_sharded{}+pipeline_parallel:schedule=zero-bubble"
    check(stacked(text.format(":reshard=false"), ranks=4), CPU)
    with pytest.raises(Conflict, match="set its reshard=false"):
        check(stacked(text.format(""), ranks=4), CPU)


def test_offloading_is_refused_where_there_is_nothing_to_move() -> None:
    with pytest.raises(Unavailable, match="moves nothing on a CPU"):
        check(stacked("fully_sharded:offload=true"), CPU)


def test_offloading_leaves_no_experts_on_the_host_that_are_in_use() -> None:
    model = SHAPE.model_copy(update={"n_expert": 4})
    text = "fully_sharded:offload=true+expert_parallel"
    with pytest.raises(Conflict, match="leave out one of them"):
        check(stacked(text, model).model_copy(update={"device": "cuda"}), GPUS)


@pytest.mark.parametrize("fields", ["", ",reshard=false", ",mixed_precision=true"])
def test_memory_that_stays_on_a_gpu_beside_offloaded_shards_is_predicted(fields: str) -> None:
    here, away = (
        estimate(stacked(f"fully_sharded:offload={offload}{fields}").model_copy(update={"device": "cuda"}), GPUS)
        for offload in ("false", "true")
    )
    assert away.timeline.peak.nbytes < here.timeline.peak.nbytes
    assert away.cost.parameter_bytes == here.cost.parameter_bytes
    assert away.step_flops == here.step_flops


def test_its_bfloat16_promises_a_loss_that_is_near_and_not_equal() -> None:
    assert resolve(Spec.parse("fully_sharded")).promised is Numerics.REASSOCIATED
    assert resolve(Spec.parse(LOW)).promised is Numerics.LOSSY


@pytest.mark.parametrize(("sums", "proven"), [(2, True), (4, False)])
def test_a_pipeline_sums_each_group_once(sums: int, proven: bool) -> None:
    shard = {"held_bytes": 32, "whole_bytes": 64, "divided_over": ("dp",), "dimensions": {"dp": 0}}
    shapes = {"shape": (4, 2), "whole_shape": (8, 2)}
    names = ("embedding.token.weight", "blocks.0.mlp.up.weight")
    weights = tuple(HeldParameter.model_validate({"name": name, **shard, **shapes}) for name in names)
    gathered = {"collective": "all_gather", "axis": "dp", "count": 4, "payload_bytes": 256, "dtype": "float32"}
    summed = {**gathered, "collective": "reduce_scatter", "count": sums, "payload_bytes": 64 * sums}
    phases = ({**gathered, "phase": "forward"}, {**gathered, "phase": "backward"}, {**summed, "phase": "backward"})
    trace = altered(
        EMPTY,
        forwards=2,
        sequences=4,
        parameter_bytes=64,
        whole_parameter_bytes=128,
        parameters=weights,
        ranks={"pp": 2, "dp": 2, "cp": 1, "tp": 1},
        place={"pp": 0, "dp": 0, "cp": 0, "tp": 0},
        communications=tuple(map(TracedCommunication.model_validate, phases)),
    )
    evidence = FullySharded().verify(trace, ResolvedRun(training=TrainingConfig(batch_size=8)))
    assert evidence.verdict is proven, evidence.observed
