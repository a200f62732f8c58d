"""The search of the largest number: few runs, the right number, and an end where a run tells nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.largest import MOST, largest_fit, with_number
from assay.absent.script_answer import AbsentAnswer
from assay.errors import UsageError
from assay.estimator.memory_fit import MemoryFit
from assay.hardware.devices import CONTEXT_BYTES
from support.absent import answer, observation

ROOM = ABSENT["h100"].visible_bytes - CONTEXT_BYTES[1]


def run_of(reserved: Callable[[int], int]) -> Callable[[int], AbsentAnswer]:
    """A script that reserves so many bytes for a number, or ends because memory is exhausted."""

    def ask(number: int) -> AbsentAnswer:
        size = reserved(number)
        if size > ROOM + CONTEXT_BYTES[1] - CONTEXT_BYTES[0]:
            return answer(observation(ended={"how": "raised", "error": "OutOfMemoryError"}), returncode=1)
        peaks = {"requested_bytes": 1, "allocated_bytes": 1, "given_out_bytes": size, "total_bytes": ROOM}
        return answer(observation(devices=({"device": 0, "reserved_bytes": size, **peaks},)))

    return ask


@pytest.mark.parametrize("largest", [1, 2, 7, 8, 9, 37, 64, 1000, 54321])
@pytest.mark.parametrize("shape", ["line", "steps", "square"])
def test_the_largest_number_is_found_in_few_runs(largest: int, shape: str) -> None:
    base = 10**9
    one = (ROOM - base) // largest
    reserved: dict[str, Callable[[int], int]] = {
        "line": lambda number: base + number * one,
        "steps": lambda number: base + max(1, largest // 5) * one * -(-number // max(1, largest // 5)),
        "square": lambda number: base + (ROOM - base) * number**2 // largest**2,
    }
    found = largest_fit(run_of(reserved[shape]))
    assert found.best is not None
    number = found.best.number
    assert reserved[shape](number) <= ROOM < reserved[shape](number + 1)
    assert len(found.probes) <= 8 + 2 * largest.bit_length()
    if shape == "line":
        assert number == largest


def test_a_line_takes_few_runs() -> None:
    assert len(largest_fit(run_of(lambda number: 10**9 + number * 10**7)).probes) <= 10


def test_even_one_may_be_too_large() -> None:
    found = largest_fit(run_of(lambda number: 10**12))
    assert found.best is None
    assert found.undecided is None
    assert found.to_dict()["largest"] is None


def test_a_number_that_changes_nothing_ends_at_the_most() -> None:
    found = largest_fit(run_of(lambda number: 10**9))
    assert found.best is not None
    assert found.best.number == MOST


@pytest.mark.parametrize("fault", [{"how": "raised", "error": "ValueError"}, {"how": "running"}])
def test_a_run_that_tells_nothing_ends_the_search(fault: dict[str, Any]) -> None:
    found = largest_fit(lambda number: answer(observation(ended=fault), returncode=1))
    assert [one.answer.fit for one in found.probes] == [MemoryFit.UNKNOWN]
    assert found.best is None
    assert found.undecided is found.probes[0]


def test_a_number_takes_the_place_of_each_mark() -> None:
    assert with_number(["python", "a.py", "--batch_size={}", "{}"], 7) == ["python", "a.py", "--batch_size=7", "7"]
    with pytest.raises(UsageError, match=r"write \{\} in its place"):
        with_number(["python", "a.py"], 7)
