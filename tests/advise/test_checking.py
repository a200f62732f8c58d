"""The recommended stack on an absent GPU: it fits there, or the next one is advised; else the ledger decides."""

from pathlib import Path
from typing import Any

import pytest

from assay.advise import checking
from assay.advise.checking import LEDGER, check_ranking
from assay.advise.problem import Problem
from assay.api import recommend
from assay.config import ResolvedRun
from assay.errors import UsageError
from assay.fake.peak import GpuPeak
from assay.records.own import TracedPeak
from support.absent import PYTHON, needs_cuda_build
from support.advice import restricted

BUDGET = 20 * 10**9


@pytest.fixture
def problem() -> Problem:
    return restricted({"sdpa_attention", "fused_adamw", "chunked_cross_entropy"}, BUDGET, "device")


def _peak(reserved: int) -> GpuPeak:
    figures = dict.fromkeys(("peak_bytes", "requested_peak_bytes", "allocated_peak_bytes"), reserved)
    kept = {name: None for name, field in TracedPeak.model_fields.items() if not field.is_required()}
    asked = {"device": "rtx4090", "torch": "2.11.0", "ran": True, "reserved_peak_bytes": reserved}
    return GpuPeak.model_construct(**{**kept, **figures, **asked})


def _answers(monkeypatch: pytest.MonkeyPatch, *answers: int | str) -> list[ResolvedRun]:
    """Let an absent GPU answer in this order, with reserved bytes or with a refusal; return the runs that it gets."""
    asked: list[ResolvedRun] = []
    left = list(answers)

    def ran(run: ResolvedRun, device: str, *rest: Any, **more: Any) -> GpuPeak:
        asked.append(run)
        answer = left.pop(0)
        if isinstance(answer, str):
            raise UsageError(answer)
        return _peak(answer)

    monkeypatch.setattr(checking, "run_on_absent_gpu", ran)
    monkeypatch.setattr(checking, "refusal", lambda: None)
    return asked


def _checked(problem: Problem, device: str = "rtx4090") -> checking.Checked:
    return check_ranking(problem, lambda: problem.rank(problem.machine), device, lambda text: None)


def test_a_stack_that_fits_there_is_advised(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    best = problem.rank(problem.machine).best.stack
    asked = _answers(monkeypatch, 10**9)
    found = _checked(problem)
    assert found.ranking.best.stack == best
    assert asked == [problem.resolved(best)]
    assert found.by == "running it on an absent GPU, with torch 2.11.0: 1.58 GiB to 1.67 GiB in use"


def test_one_that_does_not_fit_there_gives_way(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    best = problem.rank(problem.machine).best.stack
    asked = _answers(monkeypatch, BUDGET, 10**9)
    found = _checked(problem)
    assert found.ranking.best.stack != best
    assert asked == [problem.resolved(best), problem.resolved(found.ranking.best.stack)]
    assert problem.need(best) is None


def test_the_ledger_decides_where_no_absent_gpu_can(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    best = problem.rank(problem.machine).best.stack
    _answers(monkeypatch, "a module is missing there")
    found = _checked(problem)
    assert found.ranking.best.stack == best
    assert found.by == f"{LEDGER}; it ran on no absent GPU: a module is missing there"
    assert "v100 is none of a100, a100-40gb" in _checked(problem, "v100").by
    monkeypatch.setattr(checking, "refusal", lambda: "no CUDA build")
    assert _checked(problem).by.endswith(": no CUDA build")


@pytest.mark.absent
@needs_cuda_build
def test_a_stack_runs_on_an_absent_gpu_before_it_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ABSENT_PYTHON", PYTHON)
    words = ("model.n_layer=5", "model.n_embd=64", "model.n_head=2", "optimizations=[sdpa_attention,fused_adamw]")
    found = recommend("demo", *words, device="rtx4090", max_loss_change=0.0, home=tmp_path)
    assert found.checked.startswith("running it on an absent GPU, with torch ")
