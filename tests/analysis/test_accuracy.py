"""Errors of predictions: by hand, against NumPy's quantiles, and in groups."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.analysis.accuracy import Accuracy, accuracy, device_of, quantile
from assay.config import Home
from assay.config.run import Spec
from assay.records.prediction import Memory, Predicted
from assay.records.run import Environment, RunResult
from assay.records.status import Status
from assay.records.timing import Block, Quartiles
from support.records import result_of

HERE = Environment(
    assay="1", torch="2", python="3", device="cpu", processor="Epyc", cores=2, threads=1, memory_bytes=2**34
)


@pytest.fixture
def plain(tmp_path: Path) -> RunResult:
    return result_of(Home(tmp_path), "a")


def run(
    plain: RunResult,
    name: str,
    peaks: tuple[int | None, int | None],
    seconds: tuple[float | None, float | None] = (None, None),
    stack: tuple[str, ...] = (),
    **changes: object,
) -> RunResult:
    config = plain.config.model_copy(update={"optimizations": tuple(Spec(name=one) for one in stack)})
    facts = {
        "run": name,
        "config": config,
        "environment": HERE,
        "predicted": Predicted(tensors_peak_bytes=peaks[0], step_seconds=seconds[0]),
        "memory": Memory(tensors_peak_bytes=peaks[1]),
        "step_seconds": Quartiles.of([seconds[1]]) if seconds[1] is not None else None,
    }
    return plain.model_copy(update={**facts, **changes})


@pytest.fixture
def found(plain: RunResult) -> Accuracy:
    there = HERE.model_copy(update={"device": "cuda:0", "accelerator": "H100", "threads": 8})
    return accuracy(
        [
            run(plain, "exact", (100, 100), (1.0, 2.0)),
            run(plain, "low", (80, 100), (3.0, 2.0), ("sdpa_attention", "bf16_mixed")),
            run(plain, "high", (130, 100), stack=("bf16_mixed",), environment=there),
            run(plain, "unmeasured", (130, None)),
            run(plain, "unpredicted", (None, 100), predicted=None),
            run(plain, "no effect", (130, 100), status=Status.NO_EFFECT),
            run(plain, "elsewhere", (130, 100), environment=None),
        ],
        unreadable=2,
    )


def test_traced_peaks_are_a_figure_of_their_own(plain: RunResult) -> None:
    traced = run(plain, "own", (98, 100), predicted=Predicted(tensors_peak_bytes=98, traced=True))
    refused = run(plain, "refused", (None, 100), predicted=Predicted(refused="it compiles"))
    found = accuracy([run(plain, "ours", (100, 100)), traced, refused])
    assert [(one.quantity, one.runs, one.worst_run) for one in found.overall()] == [
        ("memory", 1, "ours"),
        ("traced", 1, "own"),
    ]
    assert (found.runs, found.others) == (2, 1)


def test_errors_of_all_runs_are_those_by_hand(found: Accuracy) -> None:
    assert (found.runs, found.others, found.unreadable) == (3, 4, 2)
    memory, time = found.overall()
    assert (memory.quantity, memory.runs, memory.median, memory.worst_run) == ("memory", 3, pytest.approx(0.2), "high")
    assert memory.worst == pytest.approx(0.3)
    assert memory.percentile_95 == pytest.approx(0.2 + 0.9 * 0.1)
    assert (time.quantity, time.runs, time.median) == ("roofline", 2, 0.5)
    assert abs(time.worst) == 0.5


def test_a_run_counts_for_its_device_and_each_of_its_techniques(found: Accuracy) -> None:
    devices = {(one.quantity, one.group): one.runs for one in found.by_device()}
    cpu = "Epyc, 1 thread, torch 2"
    assert devices == {("memory", cpu): 2, ("memory", "H100, torch 2"): 1, ("roofline", cpu): 2}
    techniques = {(one.quantity, one.group): (one.runs, one.worst_run) for one in found.by_technique()}
    assert techniques == {
        ("memory", "bf16_mixed"): (2, "high"),
        ("memory", "none"): (1, "exact"),
        ("memory", "sdpa_attention"): (1, "low"),
        ("roofline", "bf16_mixed"): (1, "low"),
        ("roofline", "none"): (1, "exact"),
        ("roofline", "sdpa_attention"): (1, "low"),
    }


def test_times_from_timed_steps_are_apart_from_the_roofline(plain: RunResult) -> None:
    both = Predicted(step_seconds=1.1, step_seconds_margin=0.1, roofline_seconds=0.5)
    time, roofline = accuracy([run(plain, "a", (None, None), (1.1, 1.0), predicted=both)]).overall()
    assert (time.quantity, time.worst) == ("time", pytest.approx(0.1))
    assert (roofline.quantity, roofline.worst) == ("roofline", -0.5)


def test_the_time_of_a_disturbed_run_does_not_count(plain: RunResult) -> None:
    calm = Block(steps=9, seconds=10.0, median_step_seconds=1.0, tokens=9, others_seconds=0.0, cores=2)
    busy = calm.model_copy(update={"others_seconds": 9.0})
    for blocks, counts in (((calm, calm, busy), True), ((busy, busy, calm), False)):
        found = accuracy([run(plain, "a", (100, 100), (2.0, 1.0), blocks=blocks)]).overall()
        assert [one.quantity for one in found] == ["memory", "roofline"][: 1 + counts]


def test_a_device_is_named_by_its_threads() -> None:
    assert device_of(HERE.model_copy(update={"threads": 2})) == "Epyc, 2 threads, torch 2"


def test_without_predictions_there_are_no_groups(plain: RunResult) -> None:
    empty = accuracy([])
    assert empty.overall() == empty.by_device() == empty.by_technique() == ()
    assert empty.to_dict()["runs"] == 0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_is_numpys(values: list[float], share: float) -> None:
    assert quantile(sorted(values), share) == pytest.approx(float(np.quantile(values, share)), abs=1e-6)
