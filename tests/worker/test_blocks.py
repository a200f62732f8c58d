import pytest

from assay.config import validate
from assay.optimizations import resolve_run
from assay.worker.blocks import WorkPlan, block_pieces, plan, steps_left


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_every_step_has_a_place_and_blocks_are_equal(blocks: int) -> None:
    for steps in range(60):
        pieces = plan(steps, blocks)
        assert pieces.total == steps
        assert len(set(pieces.blocks)) <= 1
        assert len(pieces.blocks) == min(blocks, max(steps - 4, 0)) or steps == 3 or steps == 4
        assert all(block >= 1 for block in pieces.blocks)
        assert pieces.warmup >= 2 or steps < 5


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, WorkPlan(0, 0, 0, ())),
        (1, WorkPlan(0, 1, 0, ())),
        (2, WorkPlan(1, 1, 0, ())),
        (3, WorkPlan(1, 1, 0, (1,))),
        (4, WorkPlan(1, 1, 1, (1,))),
        (60, WorkPlan(1, 1, 3, (11,) * 5)),
    ],
)
def test_a_run_of_few_steps_still_traces_and_then_times(steps: int, expected: WorkPlan) -> None:
    assert plan(steps) == expected


@pytest.mark.parametrize("traced", [2, 3, 9])
def test_steps_that_are_traced_beyond_the_first_shorten_the_rest(traced: int) -> None:
    for steps in range(2, 40):
        pieces = plan(steps, traced=traced)
        assert (pieces.total, pieces.trace) == (steps, min(steps, traced))
        assert pieces.blocks == plan(steps - pieces.trace + 1).blocks or pieces.trace == steps


def test_a_budget_of_tokens_shortens_the_plan() -> None:
    run = resolve_run(
        validate({"training": {"steps": 100, "batch_size": 2, "tokens": 100}, "model": {"context_length": 8}})
    )
    assert steps_left(run, 0, 0) == 7
    assert steps_left(run, 3, 48) == 4
    assert steps_left(run, 9, 144) == 0
    endless = run.model_copy(update={"training": run.training.model_copy(update={"tokens": None})})
    assert steps_left(endless, 30, 480) == 70


@pytest.mark.parametrize(
    ("replayed", "heap", "expected"),
    [
        ((), None, [("settling", 1), ("steady", 5)]),
        ((10,), None, [("replay", 1), ("settling", 1), ("steady", 4)]),
        ((12,), None, [("settling", 1), ("steady", 1), ("replay", 1), ("settling", 1), ("steady", 2)]),
        ((15,), None, [("settling", 1), ("steady", 4), ("replay", 1)]),
        ((11, 12), 14, [("steady", 1), ("replay", 1), ("replay", 1), ("steady", 1), ("heap", 1), ("steady", 1)]),
        ((10, 11), None, [("replay", 1), ("replay", 1), ("settling", 1), ("steady", 3)]),
        ((3, 99), None, [("settling", 1), ("steady", 5)]),
    ],
)
def test_a_step_after_a_replayed_one_settles(
    replayed: tuple[int, ...], heap: int | None, expected: list[tuple[str, int]]
) -> None:
    assert block_pieces(10, 6, replayed, heap) == expected


@pytest.mark.parametrize("replayed", [(), (0,), (1,), (0, 3), (1, 2)])
def test_a_block_has_a_timed_step_unless_all_are_replayed(replayed: tuple[int, ...]) -> None:
    for steps in range(1, 9):
        pieces = block_pieces(0, steps, replayed)
        assert sum(count for _, count in pieces) == steps
        assert sum(kind == "replay" for kind, _ in pieces) == len(set(range(steps)) & set(replayed))
        assert any(kind == "steady" for kind, _ in pieces) or set(range(steps)) <= set(replayed)


def test_a_block_of_one_step_is_timed() -> None:
    assert block_pieces(7, 1, ()) == [("steady", 1)]
