"""Steps are timed once, by another process, within a budget; each answer is kept at once."""

import sys
from pathlib import Path

import pytest

from assay.api import configure
from assay.config import Home, ResolvedRun
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware.rates import known_machine
from assay.launch import step_times as launched
from assay.launch.step_times import calibrate
from assay.optimizations import resolve_run

CHILD = """
import json, sys, time
open({log!r}, "a").write("started\\n")
for line in sys.stdin:
    task = json.loads(line)
    time.sleep({pause})
    depths = [run["model"]["n_layer"] for run in task["runs"]]
    names = [one["name"] for one in task["runs"][0]["optimizations"]]
    times = {{"depths": depths, "turns": [[0.5 + 0.25 * depth for depth in depths]] * 3}}
    refused = "lion" in names
    answer = {{"times": None if refused else times, "refused": "no lion" * refused}}
    print(json.dumps({{"digest": task["digest"], **answer}}), flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A child that knows the times without waiting."""
    return child(tmp_path, monkeypatch, pause=0)


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: float) -> Path:
    log = tmp_path / "log"
    code = CHILD.format(log=str(log), pause=pause)
    monkeypatch.setattr(launched, "_TIME", (sys.executable, "-c", code))
    return log


def run(*changes: str, stack: str = "") -> ResolvedRun:
    return resolve_run(
        configure("demo", ["model.vocab_size=64", "model.n_layer=6", *changes], [stack] if stack else [])
    )


def test_timed_once_and_shared_by_depths(home: Home, log: Path) -> None:
    said: list[tuple[str, float | None]] = []
    tell = lambda text, fraction: said.append((text, fraction))  # noqa: E731
    assert calibrate([run(), run("seed=3"), run(stack="bf16_mixed")], home, tell=tell) == {}
    assert said == [
        ("timing steps of few blocks: no optimization", 0.0),
        ("timing steps of few blocks: bf16_mixed", 0.5),
    ]
    machine = known_machine(home)
    for layers in (4, 6, 50):
        assert estimate(run(f"model.n_layer={layers}"), machine).step_seconds == 0.5 + 0.25 * layers
    assert calibrate([run("model.n_layer=50", stack="bf16_mixed")], home) == {}
    assert log.read_text() == "started\n"


def test_a_shallow_model_is_timed_by_itself(home: Home, log: Path) -> None:
    calibrate([run("model.n_layer=2")], home)
    assert estimate(run("model.n_layer=2"), known_machine(home)).step_seconds == 1.0


def test_a_run_that_cannot_be_timed_has_a_reason(home: Home, log: Path) -> None:
    ranks = run("ranks=2", stack="data_parallel")
    untimed = calibrate([run(stack="lion"), ranks, run(stack="activation_checkpointing:every=2")], home)
    assert {name.partition(":")[0]: reason for name, reason in untimed.items()} == {
        "lion": "no lion",
        "data_parallel": "several ranks are predicted by a roofline",
        "activation_checkpointing": f"{launched._UNEQUAL}: activation_checkpointing:every=2 is more than"
        " the model's 1 blocks; choose every between 1 and 1",
    }


def test_a_budget_ends_it_and_keeps_what_is_done(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child(tmp_path, monkeypatch, pause=0.4)
    stacks = [run(stack=stack) for stack in ("", "bf16_mixed", "sdpa_attention", "bf16_full")]
    untimed = calibrate(stacks, home, seconds=0.3)
    assert set(untimed.values()) == {"the 0.3 seconds were over"}
    assert len(untimed) == 3
    assert len(known_machine(home).step_times) == 1


def test_a_child_that_breaks_off_leaves_the_roofline(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "_TIME", (sys.executable, "-c", "raise SystemExit(1)"))
    assert calibrate([run()], home) == {"no optimization": "the process that times steps broke off"}
    assert known_machine(home).step_times == {}


def test_a_model_that_does_not_fit_is_not_built(home: Home, log: Path) -> None:
    huge = run("model.n_embd=65536", "model.n_head=64", "training.batch_size=4096")
    (reason,) = calibrate([huge], home).values()
    assert reason == "two models of few blocks do not fit into memory beside each other"
    assert not log.exists()


def test_a_place_that_cannot_be_written_is_said_first(tmp_path: Path, log: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(UsageError, match="cannot be a folder"):
        calibrate([run()], Home(tmp_path / "home"))
    assert not log.exists()
