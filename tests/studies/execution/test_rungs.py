"""Rungs of a search: the rows that go on, the log from which others follow them, and a search that was stopped."""

from collections import Counter
from pathlib import Path

import pytest

from assay.config import Home
from assay.executors.base import Ended, News, Planned
from assay.executors.news import from_events
from assay.records.status import Status
from assay.records.study import BASELINE, CellResult, ComparisonRecord, StudyEnding
from assay.studies.execution import run as module
from assay.studies.execution.rungs import rows_of
from assay.studies.folder import StudyFolder, StudyPlan
from assay.studies.kinds.successive_halving import SuccessiveHalving
from support.fake_studies import BASE, fake_cells, shape, silent

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
