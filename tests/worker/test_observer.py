"""What the child records of each step, as the loop tells it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from assay.data import Prepared
from assay.training.learning_rate import schedule
from assay.training.step_record import StepRecord
from assay.worker.observer import RunObserver
from assay.worker.phases import Phases
from assay.worker.result import RunFindings
from support.runs import run_folder


def test_a_resume_has_trained_once_a_step_made_a_finite_update(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 9})
    ignored = cast(Any, SimpleNamespace(event=lambda *_, **__: None, stepped=lambda _: None))
    phases, heard = Phases(ignored, "warmup", 0.0), list[str]()
    observer = RunObserver(
        ignored, phases, RunFindings(folder.spec(), phases), ignored, ignored, lambda: heard.append("trained")
    )
    observer.counters = observer.values = observer.watch = ignored
    rate = schedule(folder.spec().config.training)

    def step(index: int, **how: bool) -> list[str]:
        observer.stepped(StepRecord(index, 2.0, rate(index), 0.0, (), 0.01, 64, 64, **cast(Any, how)))
        return heard

    assert step(0, finite=False) == []
    assert step(1, skipped=True) == []
    assert step(2) == ["trained"]
    assert step(3) == ["trained"]
