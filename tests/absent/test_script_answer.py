"""Whether a script fits: what withdraws the answer, and the exit codes."""

from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.estimator.memory_fit import MemoryFit
from assay.hardware.devices import CONTEXT_BYTES
from support.absent import PLACE, answer, observation, read

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
