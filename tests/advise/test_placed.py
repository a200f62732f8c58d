"""Layouts by the ledger of a rank, for models that no plan covers, and the time of replicas."""

from itertools import pairwise

import pytest

from assay.advise.layouts import layout_advice
from assay.advise.placed import LayoutAdvice, Placed, step_time
from assay.advise.problem import Limits
from assay.api import configure, estimate, plan
from assay.api.configuration import on_device
from assay.errors import UsageError
from assay.estimator.device_memory import need_of
from assay.estimator.estimate import estimate as predict
from assay.hardware.cluster import cluster
from assay.hardware.devices import absent_machine
from assay.optimizations import resolve_run
from assay.report.recommend import LayoutAdviceView

LLAMA = ("model.n_layer=4", "model.n_embd=512", "model.n_head=8", "model.n_kv_head=2", "model.n_hidden=1024")
KINDS = ("fully_sharded", "zero_optimizer", "data_parallel")
WORDS = (*LLAMA, "model.context_length=512", "model.vocab_size=32000", "training.batch_size=16")


def _advice(budget: int = 79 * 2**30, name: str = "llama-3.1-8b", words: tuple[str, ...] = WORDS) -> LayoutAdvice:
    run, machine = on_device(configure(name, words), "h100")
    return layout_advice(resolve_run(run), machine, cluster("h100", 1, 8), Limits(budget, "device", 0.01), "it")


def test_a_llama_has_a_kind_of_data_parallelism_whose_rank_fits() -> None:
    found = _advice()
    best = found.recommended
    assert not found.planned
    assert best.mesh.dp == best.mesh.size == 8
    ledger = predict(
        on_device(configure("llama-3.1-8b", (*WORDS, "ranks=8"), best.title), "h100")[0], absent_machine("h100")
    )
    assert best.need_bytes == need_of("device")(ledger) <= found.budget_bytes
    text = " ".join(map(str, LayoutAdviceView(found, found.training(1e9, 2.0)).blocks()))
    assert "No plan covers this model" in text
    assert text.startswith("it fits 8 H100 80 GB with ")


@pytest.mark.slow
def test_less_memory_needs_more_sharding_and_nothing_fits_at_last() -> None:
    wide = _advice()
    least = min(one.need_bytes for one in wide.frontier)
    narrow = _advice(least)
    assert narrow.recommended.need_bytes <= least
    assert narrow.recommended.seconds >= wide.recommended.seconds
    with pytest.raises(UsageError, match=r"by data parallelism alone, without a plan; .* needs .* on each GPU"):
        _advice(10**9)


def test_replicas_take_the_time_of_one_device_and_of_their_collectives() -> None:
    changes = ("model.n_layer=4", "model.context_length=256", "training.batch_size=64")
    found = _advice(name="gpt2-124m", words=changes)
    best = found.recommended
    assert best.mesh.dp == 8
    stack = [one for one in best.title.split("+") if one.partition(":")[0] not in KINDS]
    alone = estimate("gpt2-124m", *changes[:2], "training.batch_size=8", optimizations=stack, device="h100").step_time
    assert alone is not None
    waiting = best.communication_share * best.seconds
    assert found.step_time.seconds == pytest.approx(alone.seconds + waiting)
    assert found.step_time.margin == alone.margin
    assert found.training(1e9).hours[0] > 1e9 / best.tokens_per_second / 3600 * 0.6


@pytest.mark.parametrize(("gpus", "batch"), [(3, 8), (8, 4)])
def test_no_step_is_shorter_than_the_host_queues_it(gpus: int, batch: int) -> None:
    """A tensor group of three was promised a step in 7 ms, whose launches take the host 22 ms."""
    words = (f"training.batch_size={batch}",)
    run, machine = on_device(configure("gpt2-124m", words), "h100")
    limits = Limits(79 * 2**30, "device", 0.01)
    found = layout_advice(resolve_run(run), machine, cluster("h100", 1, gpus), limits, "it")
    best = found.recommended
    stack = [one for one in best.title.split("+") if not one.startswith((*KINDS, "tensor_parallel", "pipeline"))]
    share = f"training.batch_size={batch // best.mesh.dp}"
    alone = estimate("gpt2-124m", share, optimizations=stack, device="h100").step_time
    assert alone is not None
    assert alone.apart is not None
    assert found.step_time.seconds >= alone.apart[0] / best.mesh.pp
    assert best.mesh.dp < gpus


def test_a_stage_queues_its_blocks_for_each_micro_batch() -> None:
    run, machine = on_device(configure("gpt2-124m", ("training.batch_size=8",)), "h100")
    stack = "pipeline_parallel:degree=2,micro_batches=8+sdpa_attention+bf16_mixed"
    planned = plan("gpt2-124m", "training.batch_size=8", optimizations=stack, gpu="h100", nodes=1, gpus_per_node=2)
    placed = Placed(tuple(stack.split("+")), 0, planned)
    accumulated = "gradient_accumulation:micro_batches=8+sdpa_attention+bf16_mixed"
    alone = estimate("gpt2-124m", "training.batch_size=8", optimizations=accumulated, device="h100").step_time
    assert alone is not None
    assert alone.apart is not None
    found = step_time(placed, resolve_run(run), machine)
    assert found.seconds == pytest.approx(alone.apart[0] / 2)
    assert found.seconds > planned.plan.step_seconds
    assert found.margin == 0.4


def test_a_step_that_takes_longer_than_its_launches_keeps_its_plan() -> None:
    run, machine = on_device(configure("gpt2-774m", ("training.batch_size=512",)), "h100")
    stack = "tensor_parallel:degree=2+bf16_mixed"
    planned = plan("gpt2-774m", "training.batch_size=512", optimizations=stack, gpu="h100", nodes=1, gpus_per_node=2)
    found = step_time(Placed(tuple(stack.split("+")), 0, planned), resolve_run(run), machine)
    assert found.seconds == planned.plan.step_seconds
    assert found.margin is None


@pytest.mark.parametrize(("batch", "sequences", "more"), [(1, "1 sequence", 8), (12, "12 sequences", 16)])
def test_a_batch_that_gpus_cannot_divide_is_named_instead_of_memory(batch: int, sequences: str, more: int) -> None:
    said = f"a step has {sequences}, and 8 GPUs need a multiple of 8: training.batch_size={more}$"
    with pytest.raises(UsageError, match=said):
        _advice(words=(*WORDS, f"training.batch_size={batch}"))


def test_a_reason_other_than_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("it rains")

    monkeypatch.setattr("assay.advise.layouts.replicate", refuse)
    with pytest.raises(UsageError, match="it rains"):
        _advice()


@pytest.mark.slow
def test_stacks_of_each_optimizer_are_tried_and_none_is_shown_that_another_beats() -> None:
    """Two stacks were twice in the table, four were beaten, and the second of these was missing."""
    found = _advice(words=("training.batch_size=8",))
    rows = found.frontier
    assert len({one.title for one in rows}) == len(rows) > 1
    for faster, slower in pairwise(rows):
        assert faster.seconds < slower.seconds
        assert slower.need_bytes < faster.need_bytes
    checkpointed = "fully_sharded+sdpa_attention+bf16_mixed+activation_checkpointing+fused_adamw"
    assert checkpointed in {one.title for one in rows}


def test_a_small_llama_has_each_layout_once_and_none_that_another_beats() -> None:
    rows = _advice().frontier
    assert len({one.title for one in rows}) == len(rows) > 1
    for faster, slower in pairwise(rows):
        assert faster.seconds < slower.seconds
        assert slower.need_bytes < faster.need_bytes
