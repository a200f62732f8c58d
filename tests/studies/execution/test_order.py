import pytest

from assay.config import load
from assay.records.study import AGAIN, BASELINE, Cell
from assay.studies.drift import NUDGED
from assay.studies.execution.order import in_order, shuffle_rows, waves_in_order
from assay.studies.kinds import kinds
from assay.studies.plan import waves

BASE = load("demo")
VARY = {"training.learning_rate": ["1e-3", "3e-4"], "model.bias": ["true", "false"], "optimizations": ["none", "lion"]}


def cells(kind: str, seeds: int = 1, processes: int = 1, **fields: object) -> tuple[Cell, ...]:
    known = {"seeds": seeds, "processes": processes, **fields}
    return kinds()[kind].model_validate(known, strict=False).cells(BASE)


def changed(cell: Cell) -> int:
    control = {key: levels[0] for key, levels in VARY.items()}
    return sum(level != control[key] for key, level in cell.levels.items())


def test_a_factorial_has_the_rows_that_change_least_first() -> None:
    found = in_order(cells("factorial", seeds=2, vary=VARY), "factorial")
    assert [changed(cell) for cell in found] == [0, 0, 1, 1, 1, 2, 2, 2, 3] * 2
    assert [cell.treatment for cell in found[:2]] == [BASELINE, AGAIN]
    assert [cell.seed for cell in found] == [0] * 9 + [1] * 9


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ladder", {"rungs": ["sdpa_attention", "bf16_mixed", "lion"], "leave_one_out": True}),
        ("one_at_a_time", {"vary": VARY}),
        ("fractional", {"vary": VARY, "size": 4}),
    ],
)
def test_other_kinds_keep_the_order_of_their_design(kind: str, fields: dict[str, object]) -> None:
    designed = cells(kind, **fields)
    assert in_order(designed, kind) == list(designed)


def test_every_seed_has_one_process_of_each_row_before_one_has_two() -> None:
    found = in_order(cells("comparison", seeds=2, processes=2, treatments=["lion"]), "comparison")
    assert [(cell.process, cell.seed) for cell in found[::3]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("resident", [1, 4, 9])
def test_waves_are_ordered_as_their_cells_whatever_fits_in_memory(resident: int) -> None:
    designed = cells("factorial", seeds=2, vary=VARY)
    drifts = [Cell(treatment=NUDGED, seed=seed, run=designed[0].run) for seed in (0, 1)]
    numbered = list(enumerate([*waves(designed, resident), *((one,) for one in drifts)]))
    rows_designed = [cell.treatment for cell in designed if cell.seed == 0]
    found = waves_in_order(numbered[::-1], designed, rows_designed, "factorial")
    rows = [cell for _, wave in found for cell in wave if cell.treatment not in (BASELINE, AGAIN, NUDGED)]
    assert [cell.seed for cell in rows] == [0] * 7 + [1] * 7
    if resident == 1:
        assert [changed(cell) for cell in rows] == [1, 1, 1, 2, 2, 2, 3] * 2
    last = [wave[0].treatment for number, wave in found if wave[0].seed == 0][-1]
    assert last == NUDGED, "the drift of a seed is measured after its rows"
    assert {number: {cell.name for cell in wave} for number, wave in found} == {
        number: {cell.name for cell in wave} for number, wave in numbered
    }


def test_each_seed_has_its_rows_in_an_order_of_its_own() -> None:
    designed = cells("factorial", seeds=4, processes=2, vary=VARY)
    found = shuffle_rows(designed)
    assert {cell.name for cell in found} == {cell.name for cell in designed}
    groups = {cell.group: [one.treatment for one in found if one.group == cell.group] for cell in designed}
    assert all(rows[:2] == [BASELINE, AGAIN] for rows in groups.values())
    assert len({tuple(rows) for rows in groups.values()}) == len(groups) == 8
    assert shuffle_rows(designed) == found, "the same study has the same plan"


def test_a_shuffled_plan_that_is_resumed_with_a_limit_climbs_its_ladder() -> None:
    designed = cells("ladder", rungs=["sdpa_attention", "bf16_mixed", "lion"], leave_one_out=True)
    rows = [cell.treatment for cell in designed if cell.treatment not in (BASELINE, AGAIN)]
    found = shuffle_rows(designed)
    assert [cell.treatment for cell in found[2:]] != rows
    ordered = waves_in_order(list(enumerate(waves(found, 1))), found, rows, "ladder")
    assert [wave[0].treatment for _, wave in ordered[2:]] == rows
