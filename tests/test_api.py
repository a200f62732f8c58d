"""What programs call: configure, train, estimate."""

from pathlib import Path

import pytest

import assay
from assay.api import configure
from assay.config import Home, Spec, load
from assay.errors import UsageError
from assay.launch import prepare
from assay.launch import spawn as launcher
from assay.records.prediction import Predicted
from assay.records.status import Status
from support.children import FAKE_WORKER


def test_nothing_named_is_the_demo() -> None:
    assert configure() == load("demo")
    assert configure("seed=3") == configure(None, ["seed=3"]) == configure("demo", ["seed=3"])


def test_optimizations_add_up() -> None:
    one = configure("demo", optimizations="sdpa_attention+bf16_mixed")
    assert one == configure("demo", optimizations=["sdpa_attention", "bf16_mixed"])
    assert one == configure(configure("demo", optimizations=Spec(name="sdpa_attention")), optimizations="bf16_mixed")
    with pytest.raises(UsageError, match="listed twice"):
        configure(one, optimizations="bf16_mixed")


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


def test_estimate_needs_no_corpus() -> None:
    alone = assay.estimate("demo").predicted()
    stacked = assay.estimate("demo", optimizations="activation_checkpointing").predicted()
    assert 0 < stacked["saved_bytes"] < alone["saved_bytes"]
    with pytest.raises(UsageError, match="vocab"):
        assay.estimate("demo", "data.tokenizer=char")
