"""The predicted time of a script's step: from the operators that were kept, or a reason."""

from typing import Any

import pytest

from assay.absent.clock import key_of, step_time
from assay.absent.gpus import ABSENT
from assay.estimator.timing.gpu_time import HOST_MARGIN, MARGIN, OTHER_MARGIN
from assay.estimator.timing.step_time import StepTime
from assay.hardware.devices import DEVICES
from assay.report import view
from support.absent import answer, observation


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
