"""The content of a copy: flat configuration, series by completed steps, and a summary with the verdicts."""

import math

import pytest

from assay.config import Home
from assay.config.run import Spec
from assay.records.events import event_of
from assay.store.run_folder import RunFolder
from assay.tracking.base import LONGEST_TEXT, safe, text
from assay.tracking.sender import Series, ending, sheet
from tracking.conftest import EVENTS, RATE, STARTED, Recorded


def series(rows: list[object], name: str) -> dict[int, float]:
    return {row.step: row.values[name] for row in rows if name in row.values}  # type: ignore[attr-defined]


def test_a_row_is_at_the_number_of_completed_steps() -> None:
    rows, back = Series(0.0).add(list(map(event_of, EVENTS)))
    assert not back
    assert series([*rows], "train/loss") == pytest.approx({1: 3.0, 2: 2.9, 3: 2.8, 4: 2.7})
    assert series([*rows], "validation/loss") == {4: 2.5}
    assert series([*rows], "train/step_ms") == dict.fromkeys(range(1, 5), 500.0)
    assert series([*rows], "train/tokens_per_second") == dict.fromkeys(range(1, 5), 32.0)
    assert series([*rows], "train/gradient_norm") == pytest.approx(dict.fromkeys(range(1, 5), 2.0))
    assert series([*rows], "memory/process_peak_bytes") == {4: 3e9}
    assert [row.time - STARTED for row in rows] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_a_log_that_grows_gives_each_row_once() -> None:
    found = Series(0.0)
    rows = [row for event in EVENTS for row in found.add([event_of(event)])[0]]
    assert rows == Series(0.0).add(list(map(event_of, EVENTS)))[0] == found.rows


def test_a_resumed_process_takes_back_the_steps_after_its_checkpoint() -> None:
    found = Series(0.0)
    found.add(list(map(event_of, EVENTS[:5])))
    rows, back = found.add(
        [event_of({"event": "start", "time": STARTED + 100, "resumed_at": 2}), event_of({**EVENTS[3], "loss": 2.0})]
    )
    assert back
    assert series([*rows], "train/loss") == pytest.approx({1: 3.0, 2: 2.9, 3: 2.0})
    assert [row.time - STARTED for row in rows] == [0.5, 1.0, 100.5]
    rows, back = found.add([event_of({"event": "start", "time": STARTED + 200, "resumed_at": 3})])
    assert (rows, back) == ([], False)


@pytest.mark.parametrize(("key", "value"), [("loss", None), ("log_gradient_norm", 1e6), ("seconds", 0.0)])
def test_values_that_are_not_finite_are_left_out(key: str, value: float | None) -> None:
    (row,), _ = Series(0.0).add([event_of({**EVENTS[1], key: value})])
    gone = {"loss": "train/loss", "log_gradient_norm": "train/gradient_norm", "seconds": "train/tokens_per_second"}
    assert gone[key] not in row.values
    assert all(map(math.isfinite, row.values.values()))


def test_the_configuration_is_flat_and_names_the_optimizations(recorded: Recorded) -> None:
    spec = recorded(learning_rate=RATE).spec()
    lion = spec.config.model_copy(update={"optimizations": (Spec(name="lion", fields={"beta1": 0.9}),)})
    made = sheet(spec.model_copy(update={"config": lion}))
    assert made.config["training.learning_rate"] == RATE
    assert made.config["model.n_layer"] == 1
    assert made.config["optimizations"] == "lion:beta1=0.9"
    assert made.config["optimization.lion.beta1"] == 0.9
    assert made.config["run"] == spec.id
    assert made.title == "demo, lion:beta1=0.9"
    assert all(isinstance(value, bool | int | float | str) for value in made.config.values())


def test_the_summary_has_losses_times_peaks_and_verdicts(recorded: Recorded) -> None:
    found = recorded().result()
    assert found is not None
    summary = ending(found, STARTED).summary
    assert summary["val_loss"] == 2.5
    assert summary["train_loss"] == pytest.approx(2.7)
    assert (summary["step_seconds.median"], summary["step_seconds.count"]) == (0.5, 4)
    assert (summary["memory.tensors_peak_bytes"], summary["predicted.tensors_peak_bytes"]) == (1000, 990)
    assert (summary["proof.lion"], summary["proof.values"]) == (True, True)
    assert (summary["observed.lion"], summary["status"], summary["run"]) == ("2 of 2 parameters", "done", found.run)
    assert None not in summary.values()


def test_a_run_that_has_only_begun_has_a_copy(home: Home, recorded: Recorded) -> None:
    folder = recorded()
    folder.result_file.unlink()
    folder.events_file.unlink()
    from assay.store.result import settle

    assert ending(settle(RunFolder(folder.path)), 0.0).summary["steps"] == 0


HOSTILE = (
    "..",
    "../../x",
    "/etc/passwd",
    "<script>alert(1)</script>",
    "a\nb\x1b[31m",
    "é" * 90,
    "x" * 10**7,
    "",
    "\udc80",
)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_one_component_of_a_path(name: str) -> None:
    made = safe(name)
    assert 0 < len(made) <= 80
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert made[0].isalnum()
    assert len(text(name)) <= LONGEST_TEXT
    assert text(name).isprintable()


def test_names_stay_different_and_usual_ones_stay() -> None:
    assert len({safe(name) for name in HOSTILE}) == len(HOSTILE)
    assert safe("20260101-000000-abcdef-0001-best") == "20260101-000000-abcdef-0001-best"
