"""Checks that need no reference program: replicas, masks, learning rates, options, gradient norms and updates.

Each function yields sentences on what is wrong with a record; none if it is right. Updates are held against the
optimizer's rule, replayed from the weight before and the program's own gradient.

In a small model operators cost more than their arithmetic. An optimizer that updates each element by itself does to
tensors that are joined what it does to each of them. So small tensors of one kind are joined, replayed together, and
judged one by one. What does not pass so is left to the slow replay, which alone says that an update is wrong.
"""
# More than 400 lines: the quick replay of joined tensors stands beside the slow one that it must agree with.

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.reference.expected import Expected
from assay.reference.rules import Rule, State
from assay.values import nearness
from assay.values.nearness import Judged, over, unit_roundoff
from assay.values.rate_rule import rate, rate_fault
from assay.values.recorded import Recorded

_NORM_ERROR, _SUMMED_ERROR = 2e-4, 1e-2
"""Largest relative errors of a norm: of small tensors, and of long sums. Rounding of clipped gradients is added."""
_DEVIATIONS = 5
_SIZE_ERROR, _DECAY_ERROR = 0.01, 0.1
"""Error of a step's size, and of decay, beside the standard error."""
_PART_DEVIATIONS = 8.0
_ALONG = 1e-6
"""Share of the square of a part that must be left of it; else it lies along the parts before it."""
_LARGEST = 2**12
"""Elements of a tensor, at most, that is joined with others: copies of larger ones cost more than they save."""

_States = Mapping[tuple[int, str], Mapping[str, tuple[Mapping[str, Tensor], str]]]
"""The optimizer's entries by step and parameter: tensors of that step, and the name of the entry there."""


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

    Small tensors are replayed together. All others, and those that do not pass so, are replayed one by one. So the
    states of few of them are alive at once.
    """
    steps = [_Step.of(recorded, one.index, run, expected) for one in recorded.steps if one.updated]
    states = _states(recorded)
    names = list(steps[0].before) if steps else []
    frozen = [_stayed(step, name) for name in names if not expected.trains(name) for step in steps]
    trained = list(filter(expected.trains, names))
    parts = UpdateParts(expected.rule, recorded.first)
    whole = [name for name in trained if name not in recorded.padded_rows]
    joined = _joined_updates(steps, states, whole, expected, parts)
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

    def add(self, more: "_Sums") -> None:
        """Take in the sums over other elements."""
        self.product += more.product
        self.square += more.square
        self.variance += more.variance
        self.structured += more.structured
        self.rounding += more.rounding

    def judged(self, part: str, name: str, step: int) -> Judged:
        """Judge the part's share of the error."""
        allowed = (_PART_DEVIATIONS * self.variance**0.5 + self.structured**0.5 + self.rounding) / self.square
        error, least = abs(self.product) / self.square, _SIZE_ERROR if part == "step" else _DECAY_ERROR
        return Judged("step" if part == "step" else "decay", name, step, error, over(error, least + allowed))


def _part_sums(parts: Tensor, error: Tensor, rounding: Tensor, side: int) -> list[_Sums]:
    """Return the sums of each part, a row, over one tensor, whose smaller side is `side`; `parts` are changed."""
    squares, errors = _less_earlier(parts), error.square()
    rows = torch.stack([parts @ error, parts.square() @ errors, parts.abs() @ rounding]).T.tolist()
    structured = float(errors.sum()) / side
    return [
        _Sums(product, square, variance, structured * square, rounded)
        for square, (product, variance, rounded) in zip(squares, rows, strict=True)
    ]


def _less_earlier(parts: Tensor) -> list[float]:
    """Take from each part what lies along those before it, and return the squares of the rest; 0 if nothing is left."""
    squares: list[float] = []
    for rest in parts:
        whole = left = float(rest @ rest)
        for earlier, square in zip(parts, squares, strict=False):
            if square:
                rest.sub_(earlier, alpha=float(rest @ earlier) / square)
                left = float(rest @ rest)
        squares.append(left if left > _ALONG * whole else 0.0)
    return squares


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

    def sums_of_each(
        self, shapes: Sequence[torch.Size], rate: float, before: Tensor, after: Tensor, replayed: Tensor
    ) -> list[dict[str, _Sums]]:
        """Return the sums of one update by part, for each of some tensors that are joined and decay alike.

        All that are joined have `shapes`. `rate` is the learning rate of the step.
        """
        weight, wanted = before.double().flatten(), replayed.double().flatten()
        error, rounding = after.double().flatten() - wanted, unit_roundoff(after.dtype) * wanted.abs()
        whole = self._parts(weight, wanted - weight, rate * self._rule.decay(before))
        sizes = [shape.numel() for shape in shapes]
        stacked = torch.stack(list(whole.values()))
        pieces = zip(*(torch.split(one, sizes, -1) for one in (stacked, error, rounding)), strict=True)
        sums = (
            _part_sums(parts, errors, rounded, min(shape, default=1))
            for shape, (parts, errors, rounded) in zip(shapes, pieces, strict=True)
        )
        return [{part: one for part, one in zip(whole, own, strict=True) if one.square} for own in sums]

    def add(self, name: str, step: int, before: Tensor, sums: Mapping[str, _Sums]) -> None:
        """Take in the sums of one tensor's update in one step."""
        kind = "all tensors by element" if self._rule.by_element(name, before) else "all other tensors"
        for part, found in sums.items():
            self._sums[part, name, self._first].add(found)
            self._sums[part, kind, step].add(found)

    def judged(self) -> Iterator[Judged]:
        """Judge each part of each tensor, and of the tensors of a kind together."""
        for key, one in self._sums.items():
            yield one.judged(*key)

    def _parts(self, weight: Tensor, moved: Tensor, amount: float) -> dict[str, Tensor]:
        """Return a replayed step, its decay by an amount, and what was spared; a cautious step never opposes decay."""
        if not amount:
            return {"step": moved}
        whole = -amount * weight
        if not self._rule.cautious:
            return {"step": moved - whole, "decay": whole}
        decay = whole.masked_fill(moved * weight > 0, 0.0)
        return {"step": moved - decay, "decay": decay, "spared": whole - decay}


@dataclass(frozen=True)
class _Step:
    """Tensors by name around the update of one step."""

    index: int
    rate: float
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]

    @classmethod
    def of(cls, recorded: Recorded, index: int, run: ResolvedRun, expected: Expected) -> "_Step":
        """Return the tensors of a recorded step, at the learning rate that the run's schedule has there."""
        before, after = (recorded.tensors("weight", place) for place in (index, index + 1))
        now = rate(run.training, index) * expected.rate_factor
        return cls(index, now, before, after, recorded.tensors("gradient", index))


def _stayed(step: _Step, name: str) -> Judged:
    """Judge a frozen weight, which has no gradient and stays as it is, bit for bit."""
    stays = name not in step.gradients and torch.equal(step.before[name], step.after[name])
    return Judged("update", name, step.index, 0.0, 0.0 if stays else math.inf)


def _replayed(
    recorded: Recorded,
    states: _States,
    steps: Sequence[_Step],
    name: str,
    expected: Expected,
    parts: UpdateParts,
) -> Iterator[Judged]:
    """Judge one parameter and its moments after each update, and add lossy ones to `parts`."""
    rule = expected.rule
    kept = partial(_kept, states, rule, name)
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
            (sums,) = parts.sums_of_each([weight.shape], step.rate, weight, found, replayed)
            parts.add(name, step.index, weight, sums)
        moments = kept(step.index + 1)
        for key in sorted(moments.keys() - {"steps"}):
            coarse = _is_coarse(rule, weight.dtype, key)
            yield nearness.state(step.index, f"{key} of {name}", moments[key], state[key], rounded=coarse)


def off_by_a_roundoff(gradient: Tensor, seed: int) -> Tensor:
    """Return a gradient of which each element is off by a roundoff of float32, up or down.

    Where decay cancels a gradient, one element can be most of an update's error. So none may stay as it is by chance.
    """
    noise = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, gradient.shape, generator=noise).to(gradient.device).double() * 2 - 1
    return gradient.double() * (1 + nearness.unit_roundoff(torch.float32) * signs)


def _joined_updates(
    steps: Sequence[_Step], states: _States, names: Sequence[str], expected: Expected, parts: UpdateParts
) -> dict[str, list[Judged]]:
    """Return the weights and moments of small tensors after each update, by name; without those that do not pass.

    Lossy updates that pass are added to `parts`.
    """
    rule = expected.rule
    if not steps or rule.rounds_state:
        return {}
    kinds: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name in names:
        weight = steps[0].before[name]
        small = weight.numel() <= _LARGEST and (rule.rounds_weight or weight.dtype is torch.float32)
        if small and rule.by_element(name, weight) and all(name in step.gradients for step in steps):
            kinds[weight.ndim >= 2, rule.rate_factor(name), weight.dtype].append(name)
    judged: dict[str, list[Judged]] = {}
    for (matrices, *_), members in kinds.items():
        joined = _Joined(members, [steps[0].before[name].shape for name in members], bool(matrices))
        found, sums = joined.judged(steps, states, expected, parts)
        passed = {name: own for name, own in found.items() if not any(one.failed for one in own)}
        for (name, step), own in sums.items():
            if name in passed:
                parts.add(name, step, steps[0].before[name], own)
        judged |= passed
    return judged


@dataclass(frozen=True)
class _Joined:
    """Tensors that a rule treats alike: all have one factor of the rate, and all decay or none does."""

    names: list[str]
    shapes: list[torch.Size]
    matrices: bool

    def judged(
        self, steps: Sequence[_Step], states: _States, expected: Expected, parts: UpdateParts
    ) -> tuple[dict[str, list[Judged]], dict[tuple[str, int], dict[str, _Sums]]]:
        """Judge all tensors after each update; nothing if their states cannot be joined.

        The second answer has the sums of lossy updates, by tensor and step.
        """
        found: dict[str, list[Judged]] = defaultdict(list)
        sums: dict[tuple[str, int], dict[str, _Sums]] = {}
        rule, state = expected.rule, self._state(states, expected.rule, steps[0].index)
        for step in steps:
            moments = self._state(states, rule, step.index + 1)
            if state is None or moments is None:
                return {}, {}
            before, after, gradient = map(self._join, (step.before, step.after, step.gradients))
            replayed = rule.update(self.names[0], before, gradient, state, step.rate).double()
            keys = sorted(moments.keys() - {"steps"})
            pairs = [(moments[key].double() - state[key].double(), state[key]) for key in keys]
            norms = self._norms(after - replayed, replayed - before, replayed, *(one for pair in pairs for one in pair))
            for name, (error, moved, size, *others) in zip(self.names, norms, strict=True):
                found[name].append(
                    nearness.update_of(
                        step.index, name, error, moved, size, expected.updates, after.dtype, rounded=rule.rounds_weight
                    )
                )
                for place, key in enumerate(keys):
                    off, whole = others[2 * place : 2 * place + 2]
                    coarse = _is_coarse(rule, before.dtype, key)
                    found[name].append(nearness.state_of(step.index, f"{key} of {name}", off, whole, rounded=coarse))
            if expected.updates.kind == "lossy":
                own = parts.sums_of_each(self.shapes, step.rate, before, after, replayed)
                sums |= {(name, step.index): one for name, one in zip(self.names, own, strict=True)}
        return found, sums

    @property
    def _sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    def _join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return all elements of the tensors, as one row of a matrix if the tensors are matrices."""
        return self._flat([tensors[name] for name in self.names])

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        whole = torch.cat([one.reshape(-1) for one in tensors])
        return whole[None] if self.matrices else whole

    def _state(self, states: _States, rule: Rule, step: int) -> State | None:
        """Return the joined state before a step, in the replay's form; None if the tensors' states are not alike."""
        entries = [states.get((step, name), {}) for name in self.names]
        if any(one.keys() != entries[0].keys() for one in entries):
            return None
        joined: dict[str, Tensor] = {}
        for key in entries[0]:
            parts = [tensors[entry] for tensors, entry in (one[key] for one in entries)]
            if [part.numel() for part in parts] == self._sizes and key != "step":
                joined[key] = self._flat(parts)
            elif all(torch.equal(part, parts[0]) for part in parts[1:]):
                joined[key] = parts[0]
            else:
                return None
        return rule.adopt(joined) if joined else {}

    def _norms(self, *joined: Tensor) -> list[list[float]]:
        """Return the norms of each tensor's part of what is joined, tensor by tensor."""
        parts = [part for one in joined for part in torch.split(one.flatten(), self._sizes)]
        norms = torch.stack(torch._foreach_norm(parts, 2, dtype=torch.float64))
        found: list[list[float]] = norms.view(len(joined), -1).T.tolist()
        return found


def _states(recorded: Recorded) -> _States:
    """Return the optimizer's recorded entries."""
    found: dict[tuple[int, str], dict[str, tuple[Mapping[str, Tensor], str]]] = defaultdict(dict)
    for step in range(recorded.first, recorded.first + len(recorded.steps) + 1):
        entries = recorded.tensors("state", step)
        for entry in entries:
            name, _, key = entry.rpartition("|")
            found[step, name][key] = entries, entry
    return found


def _kept(states: _States, rule: Rule, name: str, step: int) -> State:
    """Return the optimizer's state of one parameter before a step, in the replay's form; empty if it has none."""
    found = states.get((step, name), {})
    return rule.adopt({key: tensors[entry] for key, (tensors, entry) in found.items()}) if found else {}


def _is_coarse(rule: Rule, dtype: torch.dtype, moment: str) -> bool:
    """Return whether fewer than 32 bits decide a moment of a weight of this dtype."""
    return rule.rounds_state or dtype.itemsize < 4 or moment in rule.coarse_moments
