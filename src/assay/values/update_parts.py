"""Lossy updates by their parts: the size of a step, and what decays.

A bound for a rounded update may be larger than all of its decay, and hides a step that is too large by a fiftieth. But
rounding errors have either sign, so they hardly change a projection. Let E be the program's update less the replayed
one. It is fitted as a·S + b·D + c·Z. S is the replayed step, D its decay, and Z the decay that a cautious rule spares.
Each part is taken less what lies along the parts before it, so decay that is left out has b = −1. For a part X

    |a| ≤ 1 % + (8·‖E ∘ X‖ + ‖E‖·‖X‖/√n + Σ u·|w·X|) / ‖X‖²        |b|, |c| ≤ 10 % + the same

‖E ∘ X‖ / ‖X‖² is the standard error if elements err independently. An orthogonal matrix may err in its n singular
values alone, with n its smaller side, and decay may lie along these. Rounding of the weight w, with its dtype's u, need
not be independent, either: steps that are too small to change a weight are lost in all elements.

Each tensor is judged over all steps. In each step all are judged together that a rule updates element by element, and
all others, because small matrices have large standard errors.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from assay.reference.rules import Rule
from assay.values.nearness import Judged, over, unit_roundoff

_SIZE_ERROR, _DECAY_ERROR = 0.01, 0.1
"""Error of a step's size, and of decay, beside the standard error."""
_DEVIATIONS = 8.0
_ALONG = 1e-6
"""Share of the square of a part that must be left of it; else it lies along the parts before it."""


@dataclass
class _Sums:
    """Sums over all elements of one part X of some updates with an error E."""

    product: float = 0.0
    """⟨E, X⟩"""
    square: float = 0.0
    """‖X‖²"""
    variance: float = 0.0
    """‖E ∘ X‖²"""
    structured: float = 0.0
    """‖E‖²·‖X‖²/n"""
    rounding: float = 0.0
    """Σ u·|w·X|"""

    def add(self, error: Tensor, part: Tensor, rounding: Tensor) -> None:
        """Take in the elements of a tensor, each with the largest error of its rounding."""
        products, square = error * part, float(part.square().sum())
        self.product += float(products.sum())
        self.square += square
        self.variance += float(products.square().sum())
        self.structured += float(error.square().sum()) * square / min(part.shape, default=1)
        self.rounding += float((rounding * part.abs()).sum())

    def judged(self, part: str, name: str, step: int) -> Judged:
        """Judge the part's share of the error."""
        allowed = (_DEVIATIONS * self.variance**0.5 + self.structured**0.5 + self.rounding) / self.square
        error, least = abs(self.product) / self.square, _SIZE_ERROR if part == "step" else _DECAY_ERROR
        return Judged("step" if part == "step" else "decay", name, step, error, over(error, least + allowed))


class UpdateParts:
    """Sums over the updates of some steps, the first of which is `first`."""

    def __init__(self, rule: Rule, first: int) -> None:
        self._rule, self._first = rule, first
        self._sums: dict[tuple[str, str, int], _Sums] = defaultdict(_Sums)
        """By part, name of a tensor or of a kind, and step."""

    def add(self, name: str, step: int, rate: float, before: Tensor, found: Tensor, replayed: Tensor) -> None:
        """Take in the update of one tensor in one step, at its learning rate."""
        weight, wanted = before.double(), replayed.double()
        error, rounding = found.double() - wanted, unit_roundoff(found.dtype) * wanted.abs()
        kind = "all tensors by element" if self._rule.by_element(name, before) else "all other tensors"
        for part, rest in _less_earlier(self._parts(weight, wanted - weight, rate)):
            self._sums[part, name, self._first].add(error, rest, rounding)
            self._sums[part, kind, step].add(error, rest, rounding)

    def judged(self) -> Iterator[Judged]:
        """Judge each part of each tensor, and of the tensors of a kind together."""
        for key, one in self._sums.items():
            yield one.judged(*key)

    def _parts(self, weight: Tensor, moved: Tensor, rate: float) -> Iterator[tuple[str, Tensor]]:
        """Yield a replayed step, its decay, and what was spared of it; a cautious step never opposes its decay."""
        whole = -rate * self._rule.decay(weight) * weight
        spared = moved * weight > 0
        decay = whole.masked_fill(spared, 0.0) if self._rule.cautious else whole
        yield from (("step", moved - decay), ("decay", decay), ("spared", whole - decay))


def _less_earlier(parts: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield each part less what lies along those before it, unless nothing is left."""
    earlier: list[Tensor] = []
    for name, part in parts:
        rest = part
        for one in earlier:
            rest = rest - (rest * one).sum() / one.square().sum() * one
        if float(rest.square().sum()) > _ALONG * float(part.square().sum()):
            earlier.append(rest)
            yield name, rest
