"""A verification of advice: its first stacks are compared with the configuration in short runs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.advise.advice import Advice
from assay.config.home import Home

if TYPE_CHECKING:
    from assay.api.study_results import StudyResult

_VERIFIED, _STEPS = 3, 34
"""Stacks that a verification compares with the configuration, and steps of its runs."""


def verified(found: Advice, home: Home, tell: Callable[[str], None]) -> "StudyResult | None":
    """Compare the first stacks with the configuration in short runs; None if none of them adds anything."""
    from assay.api.study import compare

    points = (found.recommended, *found.frontier)
    stacks = list(dict.fromkeys(one.title for one in points if one.stack))[:_VERIFIED]
    if not stacks:
        return None
    tell(f"comparing {len(stacks)} stacks with the configuration in runs of {_STEPS} steps")
    steps = min(_STEPS, found.run.training.steps)
    short = {"steps": steps, "warmup_steps": min(5, steps - 1), "eval_interval": 0, "eval_batches": 2}
    changes = [f"training.{key}={value}" for key, value in short.items()]
    compared = compare(found.run.asked(), *changes, treatments=stacks, seeds=1, home=home)
    if compared.interrupted:
        raise KeyboardInterrupt
    return compared
