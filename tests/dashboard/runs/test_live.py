"""The course of a run: points, proofs, phase and time left, also over a resume and fields that are missing."""

import math

import pytest

from assay.config import Home
from assay.dashboard.runs.live import UNMEASURED, RunCourse, curves, point
from assay.dashboard.runs.views import against
from assay.dashboard.server_state import Results
from assay.launch.prepare import ReadyRun
from assay.records.events import event_of
from assay.records.status import Status
from assay.store.result import begun_result
from support.dashboards import batches, client
from support.records import made, say, step

START = {"event": "start", "pid": 1, "time": 0.0}


def test_a_step_is_a_point() -> None:
    assert point(event_of(step(3, loss=None, log_gradient_norm=math.log(2.0)))) == [
        3,
        None,
        0.1,
        pytest.approx(2.0),
        16,
    ]
    for unknown in (None, math.inf, math.nan, 1e9):
        assert point(event_of(step(3, log_gradient_norm=unknown)))[3] is None


def test_a_course_has_everything_that_the_page_shows(home: Home, ready_run: ReadyRun) -> None:
    course = RunCourse(made(home, ready_run).spec())
    block = {"event": "block", "steps": 2, "seconds": 0.2, "median_step_seconds": 0.1, "tokens": 32}
    evidence = {"event": "evidence", "optimization": "bf16_mixed", "observed": "49 of 49", "verdict": True}
    evaluation = {"event": "evaluation", "step": 2, "loss": 2.5, "perplexity": 1.0, "bits_per_byte": 1.0}
    phase = {"event": "phase", "name": "memory_pass"}
    events = [START, step(0), step(1), {**block, "process_peak_bytes": 5}, evidence, evaluation, phase]
    (batch,) = course(list(map(event_of, events)))
    assert [one[0] for one in batch["steps"]] == [0, 1]
    assert batch["evaluations"] == [[2, 2.5]]
    assert batch["blocks"] == [[2, 5]]
    (unread,) = RunCourse(made(home, ready_run).spec())(
        list(map(event_of, [START, step(0), {**block, "process_peak_bytes": None}]))
    )
    assert (unread["blocks"], unread["unmeasured"]) == ([], UNMEASURED)
    assert batch["unmeasured"] is None
    assert batch["proofs"] == [("bf16_mixed", "bf16_mixed: proven, 49 of 49")]
    assert (batch["phase"], batch["done"], batch["total"]) == ("memory pass", 2, 6)
    assert batch["left"] == "400 ms"  # four steps of a tenth of a second


def test_a_resume_begins_a_batch_that_takes_back(home: Home, ready_run: ReadyRun) -> None:
    course = RunCourse(made(home, ready_run).spec())
    found = course(
        [event_of(one) for one in (START, step(0), step(1), step(2), {**START, "resumed_at": 1}, step(1), step(2))]
    )
    assert [batch["resumed_at"] for batch in found] == [0, 1]
    assert [[one[0] for one in batch["steps"]] for batch in found] == [[0, 1, 2], [1, 2]]


def test_curves_leave_out_what_was_trained_anew(home: Home, ready_run: ReadyRun) -> None:
    course = RunCourse(made(home, ready_run).spec())
    early, late = {"event": "evaluation", "perplexity": 1.0, "bits_per_byte": 1.0}, {**START, "resumed_at": 1}
    log = [START, step(0), step(1, loss=9.0), {**early, "step": 2, "loss": 8.0}, late, step(1, loss=4.0)]
    found = curves(course(list(map(event_of, log))))
    assert [one[:2] for one in found["steps"]] == [[0, 3.0], [1, 4.0]]
    assert found["evaluations"] == []
    many = [{"resumed_at": None, "steps": [[n, 1.0, 0.1, None, 8] for n in range(4000)], "evaluations": []}]
    assert len(curves(many)["steps"]) == 1334


def test_fields_of_a_later_version_are_left_out(home: Home, ready_run: ReadyRun) -> None:
    course = RunCourse(made(home, ready_run).spec())
    (batch,) = course(
        [event_of({"event": "values", "proof": {"verdict": "perhaps"}}), event_of({"event": "comet", "tail": 1})]
    )
    assert batch["proofs"] == []


def test_a_stream_goes_on_from_an_offset_and_ends(home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    say(folder, START, step(0))
    half = folder.events_file.stat().st_size
    say(folder, step(1))
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    browser = client(home)
    everything = browser.get(f"/runs/{folder.id}/events").text
    assert everything.endswith(f"event: over\nid: {folder.events_file.stat().st_size}\ndata: []\n\n")
    rest = browser.get(f"/runs/{folder.id}/events", headers={"last-event-id": str(folder.events_file.stat().st_size)})
    assert batches(rest.text) == []
    later = batches(client(home).get(f"/runs/{folder.id}/events?offset={half}").text)
    assert [one[0] for one in later[-1]["steps"]][-1] == 1


def test_the_page_of_a_living_run_reads_no_log(
    home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(home, ready_run)
    say(folder, step(0))
    monkeypatch.setattr("assay.dashboard.server_state.is_running", lambda folder: True)
    monkeypatch.setattr("assay.store.run_folder.RunFolder.log", lambda self: pytest.fail("the log was read"))
    text = client(home).get(f"/runs/{folder.id}").text
    assert '<span class="status" id="status">running</span>' in text


def test_differences_to_another_run(home: Home, ready_run: ReadyRun) -> None:
    folders = [made(home, ready_run) for _ in range(2)]
    for number, folder in enumerate(folders):
        folder.write_result(
            begun_result(folder.spec()).model_copy(update={"status": Status.DONE, "val_loss": 4.0 - number})
        )
    text = client(home).get(f"/runs/{folders[0].id}?against={folders[1].id}").text
    assert "−25.0 %" in text
    assert "No setting differs." in text
    results = Results()
    refusal = against(results.of(folders[0]), "no-such-run", home, results)[1]
    assert refusal.startswith("there is no run 'no-such-run'")
