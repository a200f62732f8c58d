"""A pipeline's ranks together: equal stages idle as the formula says, those of a model as they are long."""

import pytest

from assay.cost.pipeline import schedules
from assay.cost.pipeline.bubble import bubble_fraction
from assay.estimator import estimate
from assay.estimator.timing.pipeline_idle import bubble_share, idle_shares
from assay.hardware import Machine
from support.runs import deep_run

MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34)


def idle_of(stack: str, ranks: int = 2, **model: int) -> list[float]:
    run = deep_run(stack, ranks, **model)
    found = idle_shares([estimate(run, MACHINE, rank).cost for rank in range(ranks)])
    return [found[rank] for rank in range(ranks)]


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 4), (4, 8)])
def test_equal_stages_idle_as_published(stages: int, micro_batches: int) -> None:
    formula = bubble_fraction(stages, micro_batches)
    for make in (schedules.gpipe, schedules.one_f_one_b):
        assert bubble_share(make(stages, micro_batches)) == pytest.approx(formula)
    interleaved = bubble_share(schedules.interleaved(stages, micro_batches, 2))
    assert interleaved == pytest.approx(bubble_fraction(stages, micro_batches, chunks=2))
    assert bubble_share(schedules.zero_bubble_by_hand(stages, 2 * micro_batches)) < formula


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_model_s_stages_idle_as_they_are_long(schedule: str) -> None:
    # With few tokens the head is next to nothing, and the stages are equal.
    assert idle_of(f"pipeline_parallel:schedule={schedule}", vocab_size=1) == pytest.approx([0.2, 0.2], abs=0.01)
    first, last = idle_of(f"pipeline_parallel:schedule={schedule}", vocab_size=4096)
    assert first > 0.4 > 0.2 > last


def test_crossed_lines_idle_alike_and_what_is_no_pipeline_does_not() -> None:
    alone, crossed = idle_of("pipeline_parallel"), idle_of("pipeline_parallel+data_parallel", 4)
    assert crossed == pytest.approx([alone[0], alone[0], alone[1], alone[1]])
    assert idle_shares([estimate(deep_run("data_parallel"), MACHINE, rank).cost for rank in range(2)]) == {}


def test_an_uneven_split_moves_it() -> None:
    heavy, light = idle_of("pipeline_parallel:split=6-2")
    assert heavy < 0.15
    assert light > 0.6
    # Fewer blocks for the stage with the head, which is here about two: the stages come out as equal ones do.
    evened, equal = (idle_of(f"pipeline_parallel{split}", vocab_size=768) for split in (":split=5-3", ""))
    assert evened == pytest.approx([0.2, 0.2], abs=0.03)
    assert max(equal) - min(equal) > 0.2


def test_recomputing_makes_backward_longer_on_every_stage() -> None:
    plain, again = idle_of("pipeline_parallel"), idle_of("pipeline_parallel+activation_checkpointing")
    assert again == pytest.approx(plain, abs=0.02)
