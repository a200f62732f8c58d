"""The recommended stack on an absent GPU: torch's CUDA build runs a step of it, and it fits there or is not advised.

That needs a CUDA build of torch in the environment (`launch.gpu_peak`). Where there is none, or the step cannot run
there, the ledger decides, and the answer says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from assay.absent.gpus import ABSENT
from assay.advise.problem import Problem, Ranking
from assay.errors import UsageError
from assay.launch.gpu_peak import refusal, run_on_absent_gpu
from assay.units import format_bytes

_TRIES = 4
"""Stacks that an absent GPU may refuse, before the ledger decides on the next one."""
_SECONDS = 120.0
"""Time of a step there, most of it for a compiler; if it takes longer, the ledger decides."""
LEDGER = "the ledger of the step"


@dataclass(frozen=True)
class Checked:
    """A ranking, and what decided that its best stack fits."""

    ranking: Ranking
    by: str


def check_ranking(problem: Problem, rank: Callable[[], Ranking], device: str, tell: Callable[[str], None]) -> Checked:
    """Return the ranking whose best stack an absent GPU holds. Raises `UsageError` if nothing fits.

    Stacks that do not fit there are excluded from the problem, and ranked no more.
    """
    ranking = rank()
    why = _impossible(problem, device)
    for _ in range(_TRIES):
        if why:
            break
        try:
            tell("the recommended stack runs on an absent GPU, with torch's CUDA build")
            found = run_on_absent_gpu(
                problem.resolved(ranking.best.stack), device, tell, _SECONDS, batch=None, largest=False
            )
        except UsageError as reason:
            why = str(reason)
            break
        low, high = found.in_use_bytes
        if not found.exhausted and high <= problem.limits.budget_bytes:
            amounts = f"{format_bytes(low)} to {format_bytes(high)} in use"
            return Checked(ranking, f"running it on an absent GPU, with torch {found.torch}: {amounts}")
        problem.exclude(ranking.best.stack)
        ranking = rank()
    return Checked(ranking, f"{LEDGER}; it ran on no absent GPU{f': {why}' if why else ''}")


def _impossible(problem: Problem, device: str) -> str:
    """Return why no stack of a problem can run on an absent GPU here; empty if it can."""
    if device.lower() not in ABSENT:
        return f"{device} is none of {', '.join(ABSENT)}"
    if problem.limits.of != "device":
        return f"the budget is of {problem.limits.of}"
    return refusal() or ""
