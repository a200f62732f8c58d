"""Whether a script fits: what withdraws the answer, the exit codes, and the time of its step."""

from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.script_answer import key_of, step_time
from assay.estimator.memory_fit import MemoryFit
from assay.estimator.timing.gpu_time import HOST_MARGIN, MARGIN, OTHER_MARGIN
from assay.estimator.timing.step_time import StepTime
from assay.hardware.devices import CONTEXT_BYTES, DEVICES
from assay.report import view
from support.absent import PLACE, answer, observation, read


def kept(rows: int, dtype: str = "float32", name: str = "mm") -> dict[str, Any]:
    """One product of a forward, and one of a backward."""
    wide = 4 if dtype == "float32" else 2
    x = ((rows, 1024), dtype, wide * rows * 1024)
    weight, out = ((1024, 1024), dtype, wide * 2**20), ((rows, 1024), dtype, wide * rows * 1024)
    parts = ("forward", "backward")
    return {"distinct": tuple((name, (x, weight), (out,), part, False) for part in parts), "order": (0, 0, 1)}


def timed(**operators: Any) -> Any:
    return observation(timed=True, **operators)


def test_every_device_has_a_datasheet() -> None:
    assert all(key_of(one) == key for key, one in ABSENT.items())
    assert ABSENT.keys() <= DEVICES.keys()


@pytest.mark.parametrize(
    ("device", "rows", "margin"), [("h200", 16384, MARGIN), ("h200", 8, HOST_MARGIN), ("rtx4090", 16384, OTHER_MARGIN)]
)
def test_a_step_takes_the_longer_of_host_and_device(device: str, rows: int, margin: float) -> None:
    found = step_time(timed(operators=kept(rows)), ABSENT[device])
    assert isinstance(found, StepTime)
    assert found.apart is not None
    assert found.seconds == pytest.approx(max(found.apart), rel=0.5)
    assert found.margin == margin


@pytest.mark.parametrize(
    ("operators", "device", "reason"),
    [
        (None, "h200", "compiled or captured"),
        (kept(8, name="convolution"), "h200", "nobody has measured convolution"),
        (kept(8, dtype="bfloat16"), "t4", "no products in bfloat16"),
    ],
)
def test_why_there_is_no_time(operators: dict[str, Any] | None, device: str, reason: str) -> None:
    found = step_time(timed(operators=operators), ABSENT[device])
    assert isinstance(found, str)
    assert reason in found


def test_no_time_is_told_if_none_was_asked_for() -> None:
    plain = answer(observation())
    assert plain.step_time is None
    assert not {"step_seconds", "no_step_time"} & plain.to_dict().keys()


def test_the_answer_tells_the_time_with_its_margin() -> None:
    found = answer(timed(operators=kept(16384)), device="a100")
    told = found.to_dict()
    assert told["step_seconds_margin"] == OTHER_MARGIN
    assert "operators" not in told["processes"][0]  # type: ignore[index]
    rows = [row for block in view(found).blocks() if not isinstance(block, str) for row in getattr(block, "rows", ())]
    step = dict(row[:2] for row in rows)["step"]
    assert "within ± 40 %, by operators measured on one H200, in proportion to both datasheets" in step
    assert answer(timed()).to_dict()["no_step_time"]


NEAR = ABSENT["h100"].visible_bytes


def with_reserved(size: int) -> Any:
    peaks = {"requested_bytes": 1, "allocated_bytes": 1, "given_out_bytes": size, "total_bytes": NEAR}
    return observation(devices=({"device": 0, "reserved_bytes": size, **peaks},))


def raised(error: str) -> dict[str, Any]:
    return {"how": "raised", "error": error, "message": "", "place": PLACE}


def test_a_script_fits_with_its_context() -> None:
    assert answer(with_reserved(NEAR - CONTEXT_BYTES[1])).fit is MemoryFit.YES
    assert answer(with_reserved(NEAR - CONTEXT_BYTES[1] + 1)).fit is MemoryFit.BARELY


def test_in_use_is_reserved_and_a_context() -> None:
    assert answer(with_reserved(1000)).in_use_bytes == (1000 + CONTEXT_BYTES[0], 1000 + CONTEXT_BYTES[1])


@pytest.mark.parametrize(
    ("changes", "code", "fit", "exit_code"),
    [
        ({}, 0, MemoryFit.YES, 0),
        ({"ended": {"how": "steps"}}, 0, MemoryFit.YES, 0),
        ({"ended": raised("OutOfMemoryError")}, 1, MemoryFit.NO, 3),
        ({"ended": raised("ValueError")}, 1, MemoryFit.UNKNOWN, 3),
        ({"ended": {"how": "interrupted"}}, -2, MemoryFit.UNKNOWN, 130),
        ({"ended": {"how": "signal", "signal": 15}}, -15, MemoryFit.UNKNOWN, 3),
        ({"ended": {"how": "running"}}, -9, MemoryFit.UNKNOWN, 3),
        ({"ended": {"how": "endless", "place": PLACE}}, 5, MemoryFit.UNKNOWN, 3),
        ({"reads": (read(),)}, 0, MemoryFit.UNKNOWN, 0),
        ({"reads": (read(stated=True),)}, 0, MemoryFit.YES, 0),
        ({"reads": (read("value"),)}, 0, MemoryFit.YES, 0),
        ({"unknown": ({**PLACE, "library": "cuFFT", "function": "f", "runs": True},)}, 0, MemoryFit.CONDITIONAL, 0),
        ({"refused": "the allocator pluggable"}, 0, MemoryFit.UNKNOWN, 0),
        ({"devices": ()}, 0, MemoryFit.UNUSED, 0),
        ({"devices": (), "ended": raised("ImportError")}, 1, MemoryFit.UNKNOWN, 3),
    ],
)
def test_an_end_decides_what_can_be_said(changes: dict[str, Any], code: int, fit: MemoryFit, exit_code: int) -> None:
    found = answer(observation(**changes), returncode=code)
    assert found.fit is fit
    assert found.status.exit_code == exit_code


def test_a_process_that_was_not_observed_has_no_answer() -> None:
    found = answer()
    assert found.fit is MemoryFit.UNKNOWN
    assert found.peak is None
    assert found.to_dict()["reserved_peak_bytes"] is None


def test_counts_are_those_of_a_step_after_the_first() -> None:
    assert answer(observation()).per_step("launches") == (10, 10, 10)
    assert answer(observation(by_step=())).per_step("launches") is None


def test_json_has_the_figures_of_the_sentence() -> None:
    found = answer(observation(reads=(read(),))).to_dict()
    assert found["fits"] == "unknown"
    assert found["peak_is_withdrawn"] is True
    assert found["requested_peak_bytes"] == 900
    assert found["per_step"]["products"] == {"median": 2, "least": 2, "most": 2}  # type: ignore[index]
