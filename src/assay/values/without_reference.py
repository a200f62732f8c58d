"""Checks that need no reference program: replicas, masks, learning rates, options, gradient norms and updates.

Each function yields sentences on what is wrong with a record; none if it is right. Updates are held against the
optimizer's rule, replayed from the weight before and the program's own gradient.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.reference.expected import Expected
from assay.reference.rules import Rule
from assay.values import nearness
from assay.values.joined_updates import joined_updates
from assay.values.nearness import Judged, over, unit_roundoff
from assay.values.rate_rule import rate_fault
from assay.values.recorded import Recorded
from assay.values.recorded_updates import States, UpdateStep, is_coarse, kept_state, states_of

_NORM_ERROR, _SUMMED_ERROR = 2e-4, 1e-2
"""Largest relative errors of a norm: of small tensors, and of long sums. Rounding of clipped gradients is added."""
_DEVIATIONS = 5
_SIZE_ERROR, _DECAY_ERROR = 0.01, 0.1
"""Error of a step's size, and of decay, beside the standard error."""
_PART_DEVIATIONS = 8.0
_ALONG = 1e-6
"""Share of the square of a part that must be left of it; else it lies along the parts before it."""


def plain_failures(recorded: Recorded, run: ResolvedRun, expected: Expected) -> list[str]:
    """Return the sentences of all checks."""
    return list(
        chain(
            _replicas(recorded),
            _noises(recorded, run),
            _masks(recorded, run),
            _options(recorded, expected),
            _rates(recorded, run, expected),
            _norms(recorded, run),
        )
    )


def _replicas(recorded: Recorded) -> Iterator[str]:
    for kind in ("gradient", "weight"):
        for step in range(recorded.first, recorded.first + len(recorded.steps) + 1):
            for name in recorded.differing_replicas(kind, step)[:1]:
                yield f"the replicas of the {kind} of {name} differ in step {step}"
            for name, largest in recorded.tensors(f"{kind} padding", step).items():
                if float(largest) != 0.0:
                    yield f"rows of {name} that stand for no token are not zero in step {step} ({kind})"


def _noises(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Ranks of one place draw the same dropout masks; all others draw unlike ones."""
    for step in recorded.steps if run.model.dropout > 0 else ():
        for one, other, same in recorded.noise_pairs(step.index):
            if same is not (one.place == other.place):
                drawn = "the same dropout masks" if same else "different dropout masks"
                yield f"ranks {one.rank} and {other.rank} draw {drawn} in step {step.index}"
                return


def _masks(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Masks that were kept drop the share that the run asks for, up to five standard deviations and a kernel's own."""
    p = run.model.dropout
    for one in recorded.mask_counts():
        off = abs(one.zeros - one.due(p))
        if not one.elements or off > _DEVIATIONS * math.sqrt(one.elements * p * (1 - p)):
            share = one.zeros / one.elements if one.elements else 0.0
            yield f"dropout zeroed {share:.4f} of {one.elements} elements instead of {p:g} in step {one.step}"
            return


def _options(recorded: Recorded, expected: Expected) -> Iterator[str]:
    """Yield a sentence on a group whose betas, momentum or decay are not the rule's."""
    weights = recorded.tensors("weight", recorded.first)
    for step in recorded.steps:
        for name, options in step.groups.items():
            for option, wanted in expected.rule.options(name, weights[name]).items():
                if options.get(option, wanted) != wanted:
                    yield f"{option} of {name} is {options[option]} in step {step.index}; the update rule has {wanted}"
                    return


def _rates(recorded: Recorded, run: ResolvedRun, expected: Expected) -> Iterator[str]:
    for step in recorded.steps:
        own = {name: options["lr"] for name, options in step.groups.items() if "lr" in options}
        used = {step.rate, *(one / expected.rule.rate_factor(name) for name, one in own.items())}
        faults = (rate_fault(run.training, expected.rate_factor, step.index, one) for one in used)
        yield from filter(None, faults)


def _norms(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Compare the norm of each step's gradients at the optimizer with the reported norm, after clipping.

    A step without an update must have gradients that are not finite.
    """
    clip = run.training.gradient_clip
    for step in recorded.steps:
        gradients = list(recorded.tensors("gradient", step.index).values())
        if not step.updated:
            if math.isfinite(step.log_norm):
                yield f"step {step.index} made no update, although its gradients were finite"
            continue
        squares, fourth = _sums(gradients)
        found = squares**0.5
        norm = math.exp(step.log_norm)
        clipped = 0 < clip < norm
        wanted = clip * norm / (norm + 1e-6) if clipped else norm
        # A CPU rounds the factor of clipping to the gradients' dtype before it multiplies, and a GPU does not.
        also = norm * _rounded(wanted / norm, gradients) if clipped else wanted
        # On a CPU torch adds up the squares of a tensor in some 16 running sums of float32.
        summed = min(_SUMMED_ERROR, max(one.numel() for one in gradients) / 8 * unit_roundoff(torch.float32))
        allowed = (_NORM_ERROR + summed + 3 * fourth**0.5 / max(squares, 1e-300)) * wanted
        if min(abs(found - wanted), abs(found - also)) > allowed:
            yield (
                f"the optimizer receives gradients of norm {found:.6g} in step {step.index}, and "
                f"{wanted:.6g} follows from the reported norm"
            )


def _sums(gradients: list[Tensor]) -> tuple[float, float]:
    """Return the sum of all squares of gradients, and the variance of that sum if each element is rounded.

    Clipped gradients are rounded, and independent errors of the elements add up.
    """
    total = variance = 0.0
    for one in gradients:
        squares = one.double().square()
        total += float(squares.sum())
        variance += unit_roundoff(one.dtype) ** 2 * float(torch.dot(squares.flatten(), squares.flatten()))
    return total, variance


def _rounded(factor: float, gradients: list[Tensor]) -> float:
    """Return a factor as gradients of one dtype are multiplied by it; unchanged if they have several."""
    kinds = {one.dtype for one in gradients}
    return float(torch.tensor(factor, dtype=torch.float64).to(kinds.pop())) if len(kinds) == 1 else factor


def judged_updates(recorded: Recorded, run: ResolvedRun, expected: Expected) -> list[Judged]:
    """Return every weight after every update, and every moment, each with its error relative to its bound.

    Small tensors are replayed together. Those that do not pass so, and all others, are replayed one after the other, so
    the states of few of them are alive at once.
    """
    steps = [UpdateStep.of(recorded, one.index, run, expected) for one in recorded.steps if one.updated]
    states = states_of(recorded)
    names = list(steps[0].before) if steps else []
    frozen = [_stayed(step, name) for name in names if not expected.trains(name) for step in steps]
    trained = list(filter(expected.trains, names))
    parts = UpdateParts(expected.rule, recorded.first)
    joined = joined_updates(steps, states, [name for name in trained if name not in recorded.padded_rows], expected)
    alone = (name for name in trained if name not in joined)
    replayed = [one for name in alone for one in _replayed(recorded, states, steps, name, expected, parts)]
    return [*frozen, *chain(*joined.values()), *replayed, *parts.judged()]


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
        allowed = (_PART_DEVIATIONS * self.variance**0.5 + self.structured**0.5 + self.rounding) / self.square
        error, least = abs(self.product) / self.square, _SIZE_ERROR if part == "step" else _DECAY_ERROR
        return Judged("step" if part == "step" else "decay", name, step, error, over(error, least + allowed))


class UpdateParts:
    """Lossy updates of some steps by their parts: the size of a step, and what decays.

    A bound for a rounded update may be larger than all of its decay, and hides a step that is too large by a fiftieth.
    But rounding errors have either sign, so they hardly change a projection. Let E be the program's update less the
    replayed one. It is fitted as a·S + b·D + c·Z. S is the replayed step, D its decay, and Z the decay that a cautious
    rule spares. Each part is taken less what lies along the parts before it, so decay that is left out has b = −1.
    For a part X

        |a| ≤ 1 % + (8·‖E ∘ X‖ + ‖E‖·‖X‖/√n + Σ u·|w·X|) / ‖X‖²        |b|, |c| ≤ 10 % + the same

    ‖E ∘ X‖ / ‖X‖² is the standard error if elements err independently. An orthogonal matrix may err in its n singular
    values alone, with n its smaller side, and decay may lie along these. Nor need rounding of the weight w be
    independent, with its dtype's u. Steps that are too small to change a weight are lost in all elements.

    Each tensor is judged over all steps. In each step tensors are judged together, because small ones have large
    standard errors. Those are one kind that a rule updates element by element, and all others are another.
    """

    def __init__(self, rule: Rule, first: int) -> None:
        self._rule, self._first = rule, first
        self._sums: dict[tuple[str, str, int], _Sums] = defaultdict(_Sums)
        """Sums by part, by the name of a tensor or of a kind, and by step."""

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


def _stayed(step: UpdateStep, name: str) -> Judged:
    """Judge a frozen weight, which has no gradient and stays as it is, bit for bit."""
    stays = name not in step.gradients and torch.equal(step.before[name], step.after[name])
    return Judged("update", name, step.index, 0.0, 0.0 if stays else math.inf)


def _replayed(
    recorded: Recorded,
    states: States,
    steps: Sequence[UpdateStep],
    name: str,
    expected: Expected,
    parts: UpdateParts,
) -> Iterator[Judged]:
    """Judge one parameter and its moments after each update, and add lossy ones to `parts`."""
    rule = expected.rule
    kept = partial(kept_state, states, rule, name)
    state = kept(recorded.first)
    for step in steps:
        if name not in step.gradients:
            yield Judged("update", name, step.index, float("inf"), float("inf"))
            continue
        if rule.rounds_state:
            state = kept(step.index) or state
        weight = step.before[name]
        rows = recorded.padded_rows.get(name, len(weight))
        whole, gradient = (nearness.pad_rows(one, rows) for one in (weight, step.gradients[name]))
        earlier = dict(state)
        replayed = rule.update(name, whole, gradient, state, step.rate)[: len(weight)]
        found, rounded = step.after[name], rule.rounds_weight
        compared = partial(
            nearness.update, step.index, name, weight, found, replayed, expected.updates, rounded=rounded
        )
        judged = compared()
        if judged.failed and not rounded:
            off = rule.update(name, whole, off_by_a_roundoff(gradient, step.index), earlier, step.rate)
            judged = compared(shaken=off[: len(weight)])
        yield judged
        if expected.updates.kind == "lossy":
            parts.add(name, step.index, step.rate, weight, found, replayed)
        moments = kept(step.index + 1)
        for key in sorted(moments.keys() - {"steps"}):
            coarse = is_coarse(rule, weight.dtype, key)
            yield nearness.state(step.index, f"{key} of {name}", moments[key], state[key], rounded=coarse)


def off_by_a_roundoff(gradient: Tensor, seed: int) -> Tensor:
    """Return a gradient of which each element is off by a roundoff of float32, up or down.

    Where decay cancels a gradient, one element can be most of an update's error. So none may stay as it is by chance.
    """
    noise = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, gradient.shape, generator=noise).to(gradient.device).double() * 2 - 1
    return gradient.double() * (1 + nearness.unit_roundoff(torch.float32) * signs)
