"""Each tracker with its real library: its own reader finds what the record has."""

import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay import api
from assay.config import Home
from assay.store.run_folder import RunFolder, RunSpec
from support.children import make_ready
from tracking.conftest import EVENTS, RATE, Recorded, result

Series = dict[str, dict[int, float]]
"""Values by step and by name."""
_EXTRA = pytest.mark.trackers
LIBRARIES = ["tensorboard", *(pytest.param(name, marks=_EXTRA) for name in ("mlflow", "wandb", "trackio"))]
LOSSES = {1: 3.0, 2: 2.9, 3: 2.8, 4: 2.7}
HOSTILE = "../../<script>alert(1)</script>\x1b[31m'\"`" + "x" * 10**7


class Copied:
    """A copy as its library reads it: the configuration, the series, and the summary."""

    def __init__(self, config: dict[str, Any], series: Series, summary: dict[str, Any], status: str) -> None:
        self.config, self.series, self.summary, self.status = config, series, summary, status


def from_tensorboard(folder: Path) -> list[Copied]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = []
    for place in sorted(folder.iterdir()):
        events = EventAccumulator(str(place)).Reload()
        tags = events.Tags()["scalars"]
        series = {tag: {one.step: one.value for one in events.Scalars(tag)} for tag in tags}
        summary = {
            tag.removeprefix("summary/"): next(iter(series.pop(tag).values())) for tag in tags if "summary" in tag
        }
        plugin = events.PluginTagToContent("hparams")
        start = HParamsPluginData.FromString(plugin["_hparams_/session_start_info"]).session_start_info
        end = HParamsPluginData.FromString(plugin["_hparams_/session_end_info"]).session_end_info
        config = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
        found.append(Copied(config, series, summary, {1: "good", 2: "bad"}[end.status]))
    return found


def from_mlflow(folder: Path) -> list[Copied]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == "assay"]
    found = []
    for run in client.search_runs([experiment.experiment_id]):
        names = [*run.data.metrics]
        history = {
            name: {one.step: one.value for one in client.get_metric_history(run.info.run_id, name)} for name in names
        }
        summary = {
            name.removeprefix("summary/"): next(iter(history.pop(name).values())) for name in names if "summary" in name
        }
        summary |= {name.removeprefix("assay."): value for name, value in run.data.tags.items()}
        status = {"FINISHED": "good", "FAILED": "bad"}[run.info.status]
        found.append(Copied(run.data.params, history, summary, status))
    return found


def from_wandb(folder: Path) -> list[Copied]:
    from wandb.proto import wandb_internal_pb2

    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        copied = Copied({}, {}, {}, "none")
        for data in records(file.read_bytes()):
            one = wandb_internal_pb2.Record()
            one.ParseFromString(data)
            values = plain(one.history.item)
            for name in values:
                if not name.startswith("_"):
                    copied.series.setdefault(name, {})[values["_step"]] = values[name]
            copied.config |= {**plain(one.run.config.update), **plain(one.config.update)}
            copied.summary |= plain(one.summary.update)
            if one.WhichOneof("record_type") == "exit":
                copied.status = "bad" if one.exit.exit_code else "good"
        found.append(copied)
    return found


def plain(items: Any) -> dict[str, Any]:
    """Return the values of wandb's items by their keys."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def records(content: bytes) -> Iterator[bytes]:
    """Yield the records of wandb's file, whose frames are those of LevelDB's log after a header of seven bytes.

    Newer versions have no reader in Python but the one that uploads. A record that does not fit a block of 32 KiB is
    in several pieces; a piece has a checksum (4 bytes), a length (2), and a kind (1): whole, first, middle, or last.
    """
    assert content[:4] == b":W&B"
    place, record = 7, b""
    while place + 7 <= len(content):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def from_trackio(folder: Path) -> list[Copied]:
    with closing(sqlite3.connect(folder / "assay.db")) as store:
        names = [name for (name,) in store.execute("SELECT DISTINCT run_name FROM metrics")]
        found = []
        for name in names:
            rows = store.execute("SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id", (name,)).fetchall()
            ((config,),) = store.execute("SELECT config FROM configs WHERE run_name = ?", (name,)).fetchall()
            copied = Copied(json.loads(config), {}, {}, "good")
            for step, metrics in rows:
                for key, value in json.loads(metrics).items():
                    if key.startswith("summary/"):
                        copied.summary[key.removeprefix("summary/")] = value
                    else:
                        copied.series.setdefault(key, {})[step] = value
            copied.status = "good" if copied.summary["status"] == "done" else "bad"
            found.append(copied)
    return found


READERS: dict[str, Callable[[Path], list[Copied]]] = {
    "tensorboard": from_tensorboard,
    "mlflow": from_mlflow,
    "wandb": from_wandb,
    "trackio": from_trackio,
}


def copied(home: Home, name: str, library: str) -> list[Copied]:
    """Copy a run with the real library, and return all copies that it reads."""
    pytest.importorskip(library)
    done = api.runs.track(name, to=library, home=home)
    assert done.failure is None
    return READERS[library](home.tracked / library)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_copy_is_the_record(library: str, home: Home, recorded: Recorded) -> None:
    folder = recorded(learning_rate=RATE)
    (found,) = copied(home, "best", library)
    assert found.series["train/loss"] == pytest.approx(LOSSES)
    assert found.series["train/learning_rate"] == pytest.approx(dict.fromkeys(LOSSES, RATE))
    assert found.series["train/gradient_norm"] == pytest.approx(dict.fromkeys(LOSSES, 2.0))
    assert found.series["train/step_ms"] == pytest.approx(dict.fromkeys(LOSSES, 500.0))
    assert found.series["train/tokens_per_second"] == pytest.approx(dict.fromkeys(LOSSES, 32.0))
    assert found.series["validation/loss"] == pytest.approx({4: 2.5})
    assert found.series["memory/process_peak_bytes"] == pytest.approx({4: 3e9})
    assert float(found.config["training.learning_rate"]) == RATE
    assert int(found.config["model.n_layer"]) == 1
    assert found.config["optimizations"] == "none"
    assert found.config["run"] == folder.id
    summary = {name: float(found.summary[name]) for name in ("val_loss", "memory.tensors_peak_bytes", "proof.lion")}
    assert summary == pytest.approx({"val_loss": 2.5, "memory.tensors_peak_bytes": 1000, "proof.lion": 1})
    assert float(found.summary["predicted.tensors_peak_bytes"]) == 990
    assert float(found.summary["step_seconds.median"]) == 0.5
    assert found.status == "good"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_run_that_is_copied_again_replaces_its_copy(library: str, home: Home, recorded: Recorded) -> None:
    folder = recorded()
    recorded("20260101-000000-abcdef-0001")
    copied(home, folder.id, library)
    assert len(copied(home, "20260101-000000-abcdef-0001", library)) == 2
    changed = {**EVENTS[1], "step": 3, "loss": 1.0}
    with folder.events_file.open("a") as log:
        log.write(json.dumps(changed) + "\n")
    both = copied(home, folder.id, library)
    assert sorted(found.series["train/loss"][4] for found in both) == pytest.approx([1.0, 2.7])
    assert all(set(found.series["train/loss"]) == set(LOSSES) for found in both)


@pytest.mark.parametrize("library", LIBRARIES)
def test_hostile_names_and_texts_stay_in_the_folder(library: str, home: Home, tmp_path: Path) -> None:
    pytest.importorskip(library)
    ready = make_ready(home, 4)
    data = ready.run.data.model_copy(update={"path": HOSTILE})
    run = ready.run.model_copy(update={"data": data})
    name = "<img src=x onerror=alert(1)>'\"`; rm -rf"
    spec = RunSpec(id=name, created="never", identity="0" * 12, preset=HOSTILE, config=run, data_folder="")
    folder = RunFolder(home.runs / name)
    folder.prepare(spec)
    folder.write_result(result(spec).model_copy(update={"reason": HOSTILE}))
    before = {path for path in tmp_path.rglob("*") if home.tracked not in path.parents}
    with api.runs.tracking(library, home=home) as tracking:
        tracking.send(name, HOSTILE, HOSTILE)
    assert tracking.failures == {}
    assert {path for path in tmp_path.rglob("*") if home.tracked not in path.parents} - before == {home.tracked}
    assert len(READERS[library](home.tracked / library)) == 1
    assert sum(path.stat().st_size for path in home.tracked.rglob("*") if path.is_file()) < 5 * 10**6
