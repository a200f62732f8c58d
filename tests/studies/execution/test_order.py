"""The order in which cells run, and the rungs of a search: the rows that go on, and one that was stopped."""

from collections import Counter
from pathlib import Path

import pytest

from assay.config import Home, load
from assay.executors.base import Ended, News, Planned
from assay.executors.news import from_events
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, Cell, CellResult, ComparisonRecord, StudyEnding
from assay.studies.drift import NUDGED
from assay.studies.execution import run as module
from assay.studies.execution.order import in_order, rows_of, shuffle_rows, waves_in_order
from assay.studies.folder import StudyFolder, StudyPlan
from assay.studies.kinds import kinds
from assay.studies.kinds.successive_halving import SuccessiveHalving
from assay.studies.plan import waves
from support.fake_studies import BASE, fake_cells, shape, silent

DEMO = load("demo")
VARY = {"training.learning_rate": ["1e-3", "3e-4"], "model.bias": ["true", "false"], "optimizations": ["none", "lion"]}


def cells(kind: str, seeds: int = 1, processes: int = 1, **fields: object) -> tuple[Cell, ...]:
    known = {"seeds": seeds, "processes": processes, **fields}
    return kinds()[kind].model_validate(known, strict=False).cells(DEMO)


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


SEARCH = SuccessiveHalving.model_validate(
    {"space": {"training.learning_rate": {"low": 1e-4, "high": 1e-2}}, "trials": 6, "steps": [1, 2, 3], "seeds": 1},
    strict=False,
).model_copy(update={"processes": 1, "reduction": 2})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    fake_cells(monkeypatch)
    monkeypatch.setenv("FAKE", "rates")
    return Home(tmp_path)


def searched(home: Home, tell: object = None, hours: float | None = None) -> ComparisonRecord:
    how = module.Execution(
        *(home, 1, None, "test", silent, tell or (lambda news: None)),
        kind=SEARCH.kind, stated=SEARCH, timed=False, hours=hours, halving=SEARCH.halving(),
    )  # fmt: skip
    return module.measure_design(SEARCH.cells(BASE), BASE, how)


def ran(record: ComparisonRecord) -> Counter[tuple[int, float]]:
    """Steps and learning rate of each cell, but for the control's."""
    runs = [one.cell.run.training for one in record.cells if not one.cell.treatment.startswith(BASELINE)]
    return Counter((run.steps, run.learning_rate) for run in runs)


def expected() -> Counter[tuple[int, float]]:
    """The slow reference: the fake loss grows with the learning rate, so the lowest rates go on."""
    rates = sorted({row.run.training.learning_rate for row in SEARCH.rows(BASE)[1:]})
    return Counter((steps, rate) for steps, count in ((1, 6), (2, 3), (3, 1)) for rate in rates[:count])


def test_the_best_rows_of_each_rung_go_on(home: Home) -> None:
    news: list[News] = []
    record = searched(home, news.append)
    assert record.ending is StudyEnding.COMPLETE
    assert ran(record) == expected()
    assert Counter(one.cell.treatment for one in record.cells)[BASELINE] == 1
    assert len(record.treatments) == 6 + 3 + 1
    assert [len(one.waves) for one in news if isinstance(one, Planned)][1:] == [8, 11, 12]
    folder = StudyFolder(home.reports / record.id)
    followed = list(from_events(folder.events(), plan_of(folder).waves, 0, home))
    assert [len(one.waves) for one in followed if isinstance(one, Planned)][1:] == [8, 11, 12]


def test_a_search_that_was_stopped_goes_on_with_the_same_rows(home: Home) -> None:
    for stop_after in (1, 9):
        ended: list[News] = []

        def stop(news: News, seen: list[News] = ended, at: int = stop_after) -> None:
            seen.extend([news] if isinstance(news, Ended) else [])
            if isinstance(news, Ended) and len(seen) == at:
                raise KeyboardInterrupt

        record = searched(home, stop)
        assert record.ending is StudyEnding.INTERRUPTED
        folder = StudyFolder(home.reports / record.id)
        how = module.Execution(home, 1, None, "", silent, lambda news: None)
        whole = module.resume_study(folder, how)
        assert ran(whole) == expected()
        assert whole.ending is StudyEnding.COMPLETE
        assert shape(module.resume_study(folder, how)) == shape(whole)


def test_rows_that_did_not_finish_do_not_go_on(home: Home) -> None:
    record = searched(home)
    plan = plan_of(StudyFolder(home.reports / record.id))
    worst_first = sorted(SEARCH.halving().rungs[0], key=lambda row: -loss_of(row, record.cells))

    def second(done: list[CellResult]) -> set[str]:
        return {row.replace("steps=2", "steps=1") for row in list(rows_of(plan, done))[1]}

    assert second(list(record.cells)) == set(worst_first[3:])
    failed = [_failed(one) if one.cell.treatment == worst_first[-1] else one for one in record.cells]
    assert second(failed) == set(worst_first[2:5])
    all_failed = [_failed(one) for one in record.cells]
    assert len(list(rows_of(plan, all_failed))) == 1
    some = [one for one in record.cells if one.cell.treatment != worst_first[0]]
    assert len(list(rows_of(plan, some))) == 1, "a rung is decided only when all of its rows have ended"


def plan_of(folder: StudyFolder) -> StudyPlan:
    plan = folder.plan()
    assert plan is not None
    return plan


def loss_of(row: str, cells: tuple[CellResult, ...]) -> float:
    loss = next(one.result.val_loss for one in cells if one.cell.treatment == row)
    assert loss is not None
    return loss


def _failed(one: CellResult) -> CellResult:
    return one.model_copy(update={"result": one.result.model_copy(update={"status": Status.FAILED})})
