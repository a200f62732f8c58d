"""Trackers beside runs: followed, copied, left out when they fail; the library is a stand-in in a real process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import api
from assay.config import Home
from assay.errors import UsageError
from assay.tracking import following
from assay.tracking.following import Tracking
from support.children import Fake
from tracking.conftest import TINY, Recorded

StandIn = Callable[..., None]


def copy(home: Home, run: str) -> Any:
    return json.loads((home.tracked / "wandb" / f"{run}.json").read_text())


def test_a_copy_of_a_record_has_its_rows_and_its_summary(home: Home, recorded: Recorded, stand_in: StandIn) -> None:
    stand_in("pass")
    folder = recorded()
    done = api.runs.track("best", to="wandb", home=home)
    assert (done.runs, done.failure) == ([folder.id], None)
    assert done.look == f"wandb sync {home.tracked}/wandb/wandb/offline-run-????????_??????-{folder.id}"
    found = copy(home, folder.id)
    losses = {step: row["train/loss"] for step, row in found["rows"] if "train/loss" in row}
    assert losses == pytest.approx({1: 3.0, 2: 2.9, 3: 2.8, 4: 2.7})
    assert found["summary"]["proof.lion"] is True
    assert found["given"]["mode"] == "offline"
    assert found["exit_code"] == 0


def test_a_single_run_is_followed(home: Home, fake: Fake, corpus: str, stand_in: StandIn) -> None:
    stand_in("pass")
    with api.runs.tracking("wandb", home=home) as tracking:
        result = api.train(corpus, *TINY, home=home, on_event=tracking.event)
    found = copy(home, result.run)
    assert [step for step, row in found["rows"] if "train/loss" in row] == [1, 2, 3, 4]
    assert found["summary"]["status"] == "done"
    assert tracking.looks


def test_a_cell_of_a_comparison_is_copied_with_its_name_and_study(
    home: Home, fake: Fake, corpus: str, stand_in: StandIn
) -> None:
    stand_in("pass")
    with api.runs.tracking("wandb", home=home) as tracking:
        words = {"treatments": "sdpa_attention", "seeds": 1, "processes": 1, "blocks": 1, "home": home}
        table = api.compare(corpus, *TINY, **words, on_news=tracking.news)
    given = [copy(home, run)["given"] for run in tracking.runs]
    assert {one["name"] for one in given} >= {cell.cell.name for cell in table.record.cells}
    assert {one["group"] for one in given} == {table.record.id}
    (home.tracked / "wandb" / f"{tracking.runs[0]}.json").unlink()
    assert api.runs.track(table.record.id, to="wandb", home=home).runs == sorted(tracking.runs)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise OSError(28, 'No space left on device')", "OSError: [Errno 28] No space left on device"),
        ("os._exit(7)", "its process ended with exit code 7"),
        ("time.sleep(1000)", "no answer within 2 s"),
    ],
)
def test_a_tracker_that_fails_loses_no_run(
    home: Home, fake: Fake, corpus: str, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, line: str, reason: str
) -> None:
    stand_in(line)
    if "sleep" in line:
        monkeypatch.setattr("assay.tracking.following._COPY_SECONDS", 2.0)
    said: list[str] = []
    with api.runs.tracking("wandb", home=home, on_message=said.append) as tracking:
        result = api.train(corpus, *TINY, home=home, on_event=tracking.event)
    assert result.status == "done"
    assert len(said) == 1
    assert reason in said[0]
    assert f"`assay runs track {result.run} --to wandb`" in said[0]
    assert tracking.looks == []


def test_a_library_that_cannot_be_imported_is_one_sentence(home: Home, recorded: Recorded, stand_in: StandIn) -> None:
    stand_in("pass", "raise ImportError('no such part')")
    recorded()
    done = api.runs.track("best", to="wandb", home=home)
    assert done.runs == []
    assert done.failure == "ImportError: no such part"
    assert done.look is None


def test_variables_of_the_library_do_not_reach_it(
    home: Home, recorded: Recorded, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("self.summary['seen'] = os.environ['WANDB_MODE'] + os.environ.get('WANDB_BASE_URL', ' and no server')")
    monkeypatch.setenv("WANDB_BASE_URL", "https://example.org")
    monkeypatch.setenv("WANDB_MODE", "online")
    folder = recorded()
    api.runs.track("best", to="wandb", home=home)
    assert copy(home, folder.id)["summary"]["seen"] == "offline and no server"


def test_missing_and_unknown_keys_are_named_before_anything_runs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.tracking.following.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the package mlflow; install with `pip install 'assay\[mlflow\]'`"):
        Tracking(["mlflow"], home)
    with pytest.raises(UsageError, match="did you mean 'mlflow'"):
        Tracking(["mlflo"], home)


def test_nothing_is_started_before_it_is_needed(home: Home, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("pass")
    monkeypatch.setattr(following, "_SENDER", ("/no/such/program",))
    with Tracking(["wandb"], home) as tracking:
        assert tracking.looks == []
    assert not Path(home.tracked).exists()


def test_the_measured_process_knows_no_tracker() -> None:
    from support.imports import imported

    seen = imported("-c", "import assay.worker.session")
    assert not {one for one in seen if one.startswith("assay.tracking")}
    assert not seen & {"tensorboard", "mlflow", "wandb", "trackio"}
