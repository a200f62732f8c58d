"""Measure the smallest systematic error of lossy gradients that the value check sees in 95 % of random runs.

`python benchmarks/value_bounds.py --systematic 200` calls this. Each draw is a random model that has trained in mixed
precision for some steps. Its next three steps are recorded and their references computed once. Then errors of growing
size are put into the recorded gradients until the check refuses them: another scale of all gradients of MLPs, the
smallest elements of every gradient set to zero, and noise on the gradients of norms.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from assay.values.baseline import Computed, Rounded
from assay.values.check import Check, _Found
from assay.values.nearness import Judged
from assay.values.pooled import group_of

Change = Callable[[str, Tensor], Tensor]
LEVELS = (0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
SEEN_IN = (0.5, 0.95)
"""Shares of the draws whose levels the table has."""
NEVER = float("inf")


@dataclass(frozen=True)
class Keeping(Check):
    """A check whose gradients can be judged once more, with errors in them and the same references."""

    held: list[tuple[_Found, Computed, Computed]] = field(default_factory=list)
    imitations: dict[int, Rounded | None] = field(default_factory=dict)

    def refuses(self, change: Change) -> bool:
        """True if a step's gradients are not within their bounds with an error in them."""
        ((values, near, exact),) = self.held[:1]
        assert values.gradients is not None
        changed = {name: change(name, one) for name, one in values.gradients.items()}
        return any(one.failed for one in self._imitated(replace(values, gradients=changed), near, exact))

    def _held(self, values: _Found, near: Computed, exact: Computed) -> list[Judged]:
        self.held.append((values, near, exact))
        return super()._held(values, near, exact)

    def _rounded(self, step: int, *args: Any, draw: int = 0, **named: Any) -> Rounded | None:
        if draw not in self.imitations:
            self.imitations[draw] = super()._rounded(step, *args, draw=draw, **named)
        return self.imitations[draw]

    def _judged(self, *given: Any) -> list[Judged]:
        """Leave the reported norm out, which is not changed with the gradients."""
        return [one for one in super()._judged(*given) if one.what != "norm"]


def scaled(size: float) -> Change:
    """Enlarge the gradients of MLPs."""
    return lambda name, one: one * (1 + size) if group_of(name) == "MLPs" else one


def without_smallest(share: float) -> Change:
    """Set the smallest elements of every gradient to zero."""

    def change(name: str, one: Tensor) -> Tensor:
        count = int(share * one.numel())
        return torch.where(one.abs() <= one.abs().flatten().kthvalue(count).values, 0.0, one) if count else one

    return change


def noisy(share: float) -> Change:
    """Add noise to the gradients of norms, a share of each element's size."""
    generator = torch.Generator().manual_seed(0)

    def change(name: str, one: Tensor) -> Tensor:
        noise = share * torch.randn(one.shape, generator=generator)
        return one * (1 + noise) if group_of(name) == "norms" else one

    return change


ERRORS: Mapping[str, Callable[[float], Change]] = {
    "scale of the gradients of MLPs": scaled,
    "share of the smallest elements set to zero": without_smallest,
    "noise on the gradients of norms": noisy,
}


def smallest_seen(check: Keeping) -> dict[str, float]:
    """Return the smallest level of each error from which on it is refused. The honest gradients must pass."""
    check.judged()
    found = dict.fromkeys(ERRORS, NEVER)
    for name, error in ERRORS.items():
        for level in reversed(LEVELS):
            if not check.refuses(error(level)):
                break
            found[name] = level
    return found


def table(draws: Mapping[str, list[dict[str, float]]]) -> Iterator[str]:
    """The rows of a table: for each kind of run and each error, the levels seen in half and in 95 % of the draws."""
    yield f"| runs | draws | {' | '.join(ERRORS)} |\n| --- | --- | {' | '.join('---' for _ in ERRORS)} |"
    for kind, levels in draws.items():
        cells = []
        for name in ERRORS:
            sizes = sorted(one[name] for one in levels)
            at = [sizes[int(share * (len(sizes) - 1))] for share in SEEN_IN]
            cells.append(", ".join(f"{one:.1%}" if one < NEVER else "not seen" for one in at))
        yield f"| {kind} | {len(levels)} | {' | '.join(cells)} |"
