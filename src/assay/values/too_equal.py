"""Values that are nearer to their references than a program that rounds can be: nothing was rounded there."""

from collections.abc import Sequence

from assay.records.evidence import WIDE_GROUPS
from assay.reference.expected import Closeness, Expected
from assay.values.nearness import Judged

_FLOAT32_ERROR = 2e-8
"""Error of a lossy evaluation's group, relative to float32's loss, that rounding hardly ever is below."""


def wide_groups(judged: Sequence[Judged], close: Closeness) -> int:
    """Return how many groups of a lossy evaluation have float32's loss."""
    if close.rounding is None or close.kind != "lossy":
        return 0
    return sum(one.error < _FLOAT32_ERROR for one in judged if one.what == "evaluation")


def too_wide(groups: int) -> list[str]:
    """Return a sentence if so many groups of a lossy run's evaluations have float32's loss that it is no chance."""
    if groups < WIDE_GROUPS:
        return []
    return [f"{groups} evaluated groups have float32's loss, and not that of fewer bits"]


def too_equal(judged: Sequence[Judged], expected: Expected) -> list[str]:
    """Return a sentence on gradients, and on updates, that all lack the error which rounding must cause."""
    found = []
    for what, close in (("gradient", expected.gradients), ("update", expected.updates)):
        errors = [one.shown for one in judged if one.what == what]
        if errors and max(errors) < close.at_least:
            found.append(
                f"no {what} has the rounding error that the optimizations must cause: "
                f"the largest relative error is {max(errors):.1e}"
            )
    return found
