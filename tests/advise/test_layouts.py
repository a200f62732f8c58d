"""Layouts of a step over absent GPUs: all of them are planned, and the answer is the one that brute force finds."""

from functools import cache
from itertools import product

import pytest

from assay.advise.evidence import LossChange
from assay.advise.layouts import best, divisions, layout_advice, layouts, meshes, on_one_device, pareto, runners_up
from assay.advise.placed import LayoutAdvice, Placed
from assay.advise.problem import Limits
from assay.advise.search import EQUAL, NOTICEABLE
from assay.api import configure, plan
from assay.api.configuration import on_device
from assay.config import ResolvedRun
from assay.errors import UsageError
from assay.estimator.device_memory import CONTEXT, need_of
from assay.estimator.estimate import estimate
from assay.estimator.projection import Projection
from assay.hardware.cluster import Cluster, cluster
from assay.hardware.devices import absent_machine
from assay.optimizations import resolve_run

MODEL = ("model.n_layer=4", "model.n_embd=128", "model.n_head=4", "model.context_length=64", "model.vocab_size=512")
WORDS = (*MODEL, "training.batch_size=16")
WIDE = ("model.n_embd=1024", "model.n_head=16", "model.context_length=512")
"""A model whose products are large enough for 16 bits to be worth their casts."""
HERE = absent_machine("a100")
ALL = 80 * 10**9
KINDS = ("data_parallel", "zero_optimizer", "fully_sharded:reshard=false", "fully_sharded")


def _run(*changes: str) -> ResolvedRun:
    run = configure("demo", (*WORDS, *changes)).with_vocabulary()
    return resolve_run(run.model_copy(update={"device": "cuda"}))


def _advice(budget: int = ALL, there: Cluster | None = None, *changes: str, loss: float | None = 0.01) -> LayoutAdvice:
    return layout_advice(_run(*changes), HERE, there or cluster("a100", 2, 4), Limits(budget, "device", loss), "demo")


@cache
def _every() -> tuple[Placed, ...]:
    """All candidates of a small model on two nodes of four, with the stacks that one device has."""
    run, there = _run(), cluster("a100", 2, 4)
    problem, stacks = on_one_device(run, HERE, there, Limits(ALL, "device"))
    return layouts(run, there, [problem.named(stack) for stack in stacks]).placed


@pytest.mark.parametrize(("nodes", "each"), [(1, 4), (2, 4), (3, 2), (1, 6)])
def test_the_product_of_every_mesh_is_the_number_of_gpus(nodes: int, each: int) -> None:
    run, there = _run("training.batch_size=24"), cluster("a100", nodes, each)
    found = list(meshes(run, there))
    assert found
    assert len(set(found)) == len(found)
    for mesh in found:
        assert mesh.size == there.size
        assert mesh.tp <= each
        assert run.model.n_head % mesh.tp == run.training.batch_size % mesh.dp == 0
        assert mesh.pp <= run.model.n_layer


def test_a_mesh_is_divided_by_each_kind_of_data_parallelism_with_powers_of_two_micro_batches() -> None:
    run = _run()
    (mesh,) = (one for one in meshes(run, cluster("a100", 2, 4)) if one.shape == (2, 2, 1, 2))
    found = ["+".join(map(str, each)) for each in divisions(run, mesh)]
    inner = "tensor_parallel:degree=2+pipeline_parallel:degree=2,micro_batches"
    assert found == [f"{kind}+{inner}={parts}" for kind in KINDS for parts in (1, 2, 4, 8)]


def test_candidates_are_what_brute_force_over_degrees_can_plan() -> None:
    """All degrees up to the number of GPUs are tried as a user would write them, and refused ones are left out."""
    found = {_named(one.projection) for one in _every() if one.place == 0}
    (first, *_) = [one for one in _every() if one.place == 0]
    plain = [name for name in first.stack if not name.startswith((*KINDS, "tensor", "pipeline", "gradient_acc"))]
    planned = set()
    for tp, pp, kind, parts in product((1, 2, 4, 8), (1, 2, 4, 8), ("", *KINDS), (1, 2, 4, 8, 16)):
        names = [kind] if kind else []
        names += [f"tensor_parallel:degree={tp}"] if tp > 1 else []
        if pp > 1:
            names.append(f"pipeline_parallel:degree={pp},micro_batches={parts}")
        elif parts > 1:
            names.append(f"gradient_accumulation:micro_batches={parts}")
        if tp > 4 or not names:
            continue
        try:
            planned.add(_named(_planned("+".join((*names, *plain)))))
        except UsageError:
            continue
    assert planned == found
    assert len(planned) > 40


def _named(planned: Projection) -> tuple[str, ...]:
    return tuple(map(str, planned.run.optimizations))


def _planned(stack: str) -> Projection:
    return plan("demo", *WORDS, optimizations=stack, gpu="a100", nodes=2, gpus_per_node=4)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.0])
def test_the_answer_is_that_of_brute_force(share: float) -> None:
    needs = sorted(one.need_bytes for one in _every())
    budget = needs[0] + int(share * (needs[-1] - needs[0]))
    fits = [one for one in _every() if one.need_bytes <= budget]
    fastest = max(one.tokens_per_second for one in fits)
    near = [one for one in fits if one.tokens_per_second * EQUAL >= fastest * (1 - 1e-12)]
    found = _advice(budget, loss=None)
    assert found.candidates == len(_every())
    assert found.recommended.title in {one.title for one in near}
    assert found.recommended.preference == min(one.preference for one in near)
    assert found.frontier[0].tokens_per_second == fastest
    for faster, slower in zip(found.frontier, found.frontier[1:], strict=False):
        assert faster.seconds <= slower.seconds
        assert slower.need_bytes <= NOTICEABLE * faster.need_bytes
    for one in fits:
        assert any(it.seconds <= one.seconds and NOTICEABLE * it.need_bytes <= one.need_bytes for it in found.frontier)


def test_runners_up_are_the_fastest_of_each_other_mesh() -> None:
    found = _advice()
    others = [one.mesh for one in found.runners_up]
    assert len(set(others)) == len(others) > 1
    assert found.recommended.mesh not in others
    for one in found.runners_up:
        assert one.seconds == min(each.seconds for each in _every() if each.mesh == one.mesh)


def test_the_answer_is_the_plan_of_its_own_techniques() -> None:
    found = _advice().recommended
    assert _planned(found.title).plan == found.projection.plan


def test_replicas_need_what_their_ledger_has_and_others_what_is_planned_with_a_context() -> None:
    """A plan has one copy of the logits less than a step, and no room for CUDA: what it said to fit did not."""
    kinds = set()
    for one in _every():
        plan_bytes, alone = one.projection.plan.memory_bytes, one.mesh.size == one.mesh.dp
        kinds.add(alone)
        ledger = need_of("device")(estimate(one.projection.run, HERE)) if alone else plan_bytes + CONTEXT.high
        assert one.need_bytes == pytest.approx(ledger, abs=1)
        assert one.least_bytes <= one.need_bytes
        assert one.fits(one.need_bytes)
        assert not one.fits(one.need_bytes - 1)
    assert kinds == {True, False}


def test_the_ledger_of_a_rank_decides_whether_it_fits() -> None:
    """The plan of the fastest stack was 71 GiB of a device's 79 GiB, and its ledger 103 GiB."""
    run = resolve_run(on_device(configure("gpt2-124m", ("training.batch_size=1024",)), "a100")[0])
    found = layout_advice(run, HERE, cluster("a100", 1, 8), Limits(ALL, "device", 0.01), "it")
    for one in (found.recommended, *found.frontier, *found.runners_up):
        assert one.need_bytes <= ALL
        if one.mesh.dp == one.mesh.size:
            words = ("training.batch_size=1024", "ranks=8")
            there = on_device(configure("gpt2-124m", words, one.title), "a100")[0]
            assert need_of("device")(estimate(there, HERE)) == one.need_bytes


def test_tokens_of_a_step_are_those_of_the_configuration() -> None:
    assert {one.projection.run.tokens_per_step for one in _every()} == {16 * 64}


def test_shares_of_waiting_are_of_one_step() -> None:
    for one in _every():
        assert 0 <= one.communication_share < 1
        assert (one.idle_share > 0) == (one.mesh.pp > 1)
    alone = next(one for one in _every() if one.mesh.shape == (1, 8, 1, 1))
    assert alone.communication_share == pytest.approx(alone.projection.plan.gradient_seconds / alone.seconds)


def test_stacks_of_one_device_are_those_that_several_ranks_may_have() -> None:
    found = _advice(ALL, None, *WIDE, loss=None)
    assert {"sdpa_attention", "bf16_mixed"} <= set(found.recommended.stack)
    assert {"cuda_graphs", "selective_checkpointing"} <= set(found.unplanned)
    assert "gradient_accumulation" not in found.unplanned


def test_without_16_bit_products_the_answer_warns() -> None:
    said = "plans assume 16-bit products"
    assert not any(said in one for one in _advice(ALL, None, *WIDE, loss=None).warnings)
    worse = {name: LossChange(0.03, (0.02, 0.04), "here") for name in ("bf16_mixed", "fp16_mixed")}
    limits = Limits(ALL, "device", 0.01, worse)
    strict = layout_advice(_run(), HERE, cluster("a100", 2, 4), limits, "demo")
    assert "bf16_mixed" in strict.lossy
    assert any(said in one for one in strict.warnings)


def test_nothing_that_fits_is_a_sentence_with_the_smallest_memory() -> None:
    least = min(_every(), key=lambda one: one.need_bytes)
    with pytest.raises(UsageError, match=rf"the smallest memory of a fullest rank is {least.need_bytes} bytes") as said:
        _advice(1000, loss=None)
    assert f"on {least.mesh} with " in str(said.value)
    assert _advice(least.need_bytes, loss=None).recommended.need_bytes == least.need_bytes


def test_a_model_that_no_layout_serves_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="no layout of these GPUs can be planned; choose a number that divides"):
        _advice(ALL, cluster("a100", 1, 7))
    assert not _advice(ALL, cluster("a100", 1, 2), "model.n_kv_head=2").planned


def test_a_batch_that_gpus_cannot_divide_is_named_before_a_refused_pipeline() -> None:
    said = "can be planned: a step has 7 sequences, and 8 GPUs need a multiple of 8: training.batch_size=8$"
    with pytest.raises(UsageError, match=said):
        _advice(ALL, cluster("a100", 1, 8), "training.batch_size=7", "model.n_layer=3")


def test_refused_combinations_are_counted_and_are_no_candidates() -> None:
    run, there = _run("model.n_layer=3"), cluster("a100", 1, 4)
    found = layouts(run, there, [()])
    asked = sum(len(list(divisions(run, mesh))) for mesh in meshes(run, there))
    assert len(found.placed) + len(found.refused) == asked
    assert any("do not divide" in reason for reason in found.refused)
    assert all(run.model.n_layer % one.mesh.pp == 0 for one in found.placed)


def test_equally_fast_ones_are_simple() -> None:
    ordered = sorted(_every(), key=lambda one: one.seconds)
    assert best(ordered, ALL).seconds <= EQUAL * ordered[0].seconds
    assert pareto(ordered, ALL)[0].seconds == ordered[0].seconds
    assert best(ordered, ALL) not in runners_up(ordered, best(ordered, ALL), ALL)


def test_a_table_has_of_equally_fast_ones_the_one_that_needs_least() -> None:
    rows = pareto(sorted(_every(), key=lambda one: one.seconds), ALL)
    assert len({one.seconds for one in rows}) == len(rows)
