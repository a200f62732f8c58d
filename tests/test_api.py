"""What programs call: configure, train, estimate."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import assay
from assay.api import configure
from assay.config import Home, Spec, load
from assay.errors import UsageError
from assay.hardware import Machine
from assay.launch import prepare
from assay.launch import spawn as launcher
from assay.records.prediction import Predicted
from assay.records.status import Status
from support.children import FAKE_WORKER

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *(ROOT / "docs").glob("*stud*.md"))


@pytest.mark.parametrize("room", [assay, assay.study, assay.runs])
def test_every_name_that_is_promised_is_there(room: ModuleType) -> None:
    promised = getattr(room, "__all__", [])
    assert all(callable(getattr(room, name)) or isinstance(getattr(room, name), ModuleType) for name in promised)
    written = re.findall(r"assay\.study\.(\w+)\(|assay\.runs\.(\w+)\(", "".join(one.read_text() for one in PAGES))
    for study, run in written:
        assert callable(getattr(assay.study, study) if study else getattr(assay.runs, run))


def test_nothing_named_is_the_demo() -> None:
    assert configure() == load("demo")
    assert configure("seed=3") == configure(None, ["seed=3"]) == configure("demo", ["seed=3"])


def test_optimizations_add_up() -> None:
    one = configure("demo", optimizations="sdpa_attention+bf16_mixed")
    assert one == configure("demo", optimizations=["sdpa_attention", "bf16_mixed"])
    assert one == configure(configure("demo", optimizations=Spec(name="sdpa_attention")), optimizations="bf16_mixed")
    with pytest.raises(UsageError, match="listed twice"):
        configure(one, optimizations="bf16_mixed")


def test_optimizations_and_overrides_of_other_types_are_refused() -> None:
    assert configure("demo", optimizations=None) == configure("demo")
    for words in ({"optimizations": 5}, {"overrides": [3]}):
        with pytest.raises(UsageError, match="is not"):
            configure("demo", **words)  # type: ignore[arg-type]


def test_a_run_is_a_source_too() -> None:
    run = load("demo", ["training.steps=7"])
    assert configure(run, ["seed=4"]) == load("demo", ["training.steps=7", "seed=4"])


def test_a_file_whose_name_has_an_equals_sign(tmp_path: Path) -> None:
    path = tmp_path / "lr=3.yaml"
    path.write_text("seed: 5")
    assert configure(str(path)).seed == 5


def test_train_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "WORKER", FAKE_WORKER)
    monkeypatch.setattr(prepare, "predict", lambda run, machine: Predicted())
    monkeypatch.delenv("FAKE", raising=False)
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 40)
    events: list[dict[str, object]] = []
    result = assay.train(
        f"data.path={tmp_path / 'text.txt'}",
        *("model.context_length=8", "training.steps=3", "training.batch_size=2"),
        home=tmp_path / "home",
        on_event=events.append,
    )
    assert (result.status, result.steps) == (Status.DONE, 3)
    kinds = [str(event["event"]) for event in events]
    assert kinds[0] == "prepare"
    assert kinds[kinds.index("run") :][:2] == ["run", "start"]
    assert kinds.count("step") == 3
    assert (Home(tmp_path / "home").runs / result.run).is_dir()


def test_estimate_prepares_a_text_only_for_its_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    alone = assay.estimate("demo").predicted()
    stacked = assay.estimate("demo", optimizations="activation_checkpointing").predicted()
    assert 0 < stacked["saved_bytes"] < alone["saved_bytes"]
    assert not any(tmp_path.iterdir())
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 2000)
    found = assay.estimate("demo", "data.tokenizer=char", f"data.path={tmp_path / 'text.txt'}")
    assert found.run.model.vocab_size == len(set("to be or not to be\n"))
    with pytest.raises(UsageError, match=r"no file or folder.*; without the text, set model\.vocab_size"):
        assay.estimate("demo", "data.tokenizer=char", f"data.path={tmp_path / 'none.txt'}")


def test_a_predicted_step_has_a_frame_a_figure_and_a_report() -> None:
    found = assay.estimate(
        "demo", optimizations="sdpa_attention", machine=Machine(processor="a", cores=2, memory_bytes=2**33)
    )
    frame = found.to_frame()
    assert frame["bytes"].max() == found.timeline.peak.nbytes
    assert len(frame) == len(found.timeline.instants)
    assert found.plot() is not None
    assert "sdpa_attention" in found._repr_html_()


def test_a_planned_step_has_a_frame_and_a_report() -> None:
    found = assay.plan("gpt2-124m", optimizations="data_parallel", gpu="h100")
    assert found.to_frame().weights.tolist() == [held.weights for held in found.plan.held]
    assert "data_parallel" in found._repr_html_()
    assert found.plot() is not None
    assert assay.project is assay.plan  # the earlier name


def test_a_trained_run_has_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "WORKER", FAKE_WORKER)
    monkeypatch.setattr(prepare, "predict", lambda run, machine: Predicted())
    monkeypatch.delenv("FAKE", raising=False)
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 40)
    result = assay.train(
        f"data.path={tmp_path / 'text.txt'}",
        *("model.context_length=8", "training.steps=3", "training.batch_size=2"),
        home=tmp_path / "home",
    )
    frame = result.to_frame()
    assert frame.index.tolist() == [0, 1, 2]
    assert {"loss", "seconds"} <= set(frame.columns)
    assert result.run in result._repr_html_()
    assert repr(result) == f"<run {result.run}: done after 3 steps>"
    assert assay.runs.show("last", tmp_path / "home") == result
    listed = assay.runs.ls(home=tmp_path / "home")
    assert listed.to_frame().index.tolist() == [result.run]
    assert result.run in listed._repr_html_()
    assert assay.runs.rm(result.run, home=tmp_path / "home") == [result.run]
    with pytest.raises(UsageError, match="no run"):
        result.to_frame()
    assert assay.runs.ls(home=tmp_path / "home").to_frame().empty
