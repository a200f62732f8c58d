"""A script under several settings of torch's allocator: what is asked, which run is least, and what is refused."""

from typing import Any

import pytest

from assay import api
from assay.absent.allocator_runs import USUAL, AllocatorRuns, chosen_settings, run_allocators
from assay.absent.script_answer import AbsentAnswer
from assay.errors import UsageError
from assay.records.status import Exit
from assay.report import view
from support.absent import PYTHON, answer, needs_cuda_build, observation, script

GIB = 2**30
EXPANDABLE, SPLIT = "expandable_segments:True", "max_split_size_mb:128"
EXHAUSTED = {"how": "raised", "error": "OutOfMemoryError", "message": "", "place": {}}


def run_with(reserved: int, **more: Any) -> AbsentAnswer:
    """A run that requested one GiB, and reserved so many."""
    sizes = {"requested_bytes": GIB, "allocated_bytes": GIB, "total_bytes": 80 * GIB, "given_back": 3}
    peaks = {"device": 0, **sizes, "reserved_bytes": reserved * GIB, "given_out_bytes": reserved * GIB}
    return answer(observation(devices=(peaks,), **more), returncode=int(bool(more)))


def runs_of(*answers: AbsentAnswer) -> AllocatorRuns:
    """Runs with torch's defaults and further settings, in this order."""
    given = iter(answers)
    return run_allocators(("", EXPANDABLE, SPLIT)[: len(answers)], lambda variables: next(given))


def first_of(found: AllocatorRuns) -> str:
    """The first sentence of an answer."""
    return str(next(iter(view(found).blocks())))


def test_each_setting_is_a_variable_of_its_run() -> None:
    asked: list[dict[str, str]] = []

    def ask(variables: dict[str, str]) -> AbsentAnswer:
        asked.append(variables)
        return run_with(2)

    run_allocators(("", EXPANDABLE), ask)
    assert asked == [{}, {"PYTORCH_ALLOC_CONF": EXPANDABLE}]


def test_the_least_reserved_memory_that_fits_is_found() -> None:
    found = runs_of(run_with(4), run_with(2), run_with(1, ended=EXHAUSTED))
    assert found.least is found.runs[1]
    assert [one.unused for one in found.runs] == [0.75, 0.5, 0.0]
    assert (found.exit_code, found.to_dict()["least"]) == (Exit.DONE, EXPANDABLE)
    assert first_of(found).startswith(f"Least is reserved with {EXPANDABLE}: 2.00 GiB on one NVIDIA H100")
    assert "torch's defaults reserve 4.00 GiB" in first_of(found)


def test_a_setting_may_fit_where_the_defaults_do_not() -> None:
    found = runs_of(run_with(79, ended=EXHAUSTED), run_with(70))
    assert found.exit_code is Exit.DONE
    assert "with torch's defaults the script does not fit" in first_of(found)


def test_equal_settings_leave_the_defaults() -> None:
    assert first_of(runs_of(run_with(2), run_with(2))).startswith("None of 2 settings reserves less")


def test_nothing_fits_if_no_run_does() -> None:
    found = runs_of(run_with(79, ended=EXHAUSTED), run_with(79, ended=EXHAUSTED))
    assert (found.least, found.exit_code) == (None, Exit.UNMET)
    assert "memory is exhausted" in first_of(found) or "does not fit" in first_of(found)


def test_an_interrupt_ends_the_comparison() -> None:
    found = runs_of(run_with(2), run_with(2, ended={"how": "interrupted"}), run_with(2))
    assert (len(found.runs), found.exit_code) == (2, Exit.INTERRUPTED)


def test_the_defaults_come_first_and_own_settings_replace_the_usual() -> None:
    assert chosen_settings(()) == ("", *USUAL)
    assert chosen_settings((SPLIT, SPLIT)) == ("", SPLIT)


@pytest.mark.parametrize("text", ["expandable", "backend:cudaMallocAsync"])
def test_settings_that_tell_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write settings such as|only CUDA knows"):
        chosen_settings((text,))


def test_settings_of_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", EXPANDABLE)
    with pytest.raises(UsageError, match="PYTORCH_CUDA_ALLOC_CONF is set"):
        chosen_settings(())


RAGGED = """
import torch
weight = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for rows in (3000, 5000, 4000, 9000, 6000, 7000):
    torch.relu(torch.zeros(rows, 1024, device="cuda") @ weight).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@needs_cuda_build
@pytest.mark.absent
@pytest.mark.usefixtures("home")
def test_expandable_segments_reserve_less_for_rows_of_many_lengths(tmp_path: Any) -> None:
    found = api.absent_allocators("h100", [PYTHON, script(tmp_path, RAGGED)], settings=(EXPANDABLE,))
    requested = {one.answer.peak.requested_bytes for one in found.runs if one.answer.peak}
    assert len(requested) == 1
    assert found.least is found.runs[1]
    assert (found.default.reserved_bytes or 0) > 1.2 * (found.least.reserved_bytes or 0)
