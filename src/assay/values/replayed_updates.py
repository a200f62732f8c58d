"""Updates of recorded steps, held against the optimizer's rule.

Each is replayed from the weight before and the program's own gradient. In a small model operators cost more than their
arithmetic. An optimizer that updates each element by itself does to tensors that are joined what it does to each of
them. So small tensors of one kind are joined, replayed together, and judged one by one. What does not pass so is left
to the slow replay, which alone says that an update is wrong.
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
from assay.reference.expected import Closeness, Expected
from assay.reference.rules import Rule, State
from assay.values import nearness
from assay.values.nearness import Judged, over, unit_roundoff
from assay.values.rate_rule import rate
from assay.values.recorded import Recorded

_SIZE_ERROR, _DECAY_ERROR = 0.01, 0.1
"""Error of a step's size, and of decay, beside the standard error."""
_PART_DEVIATIONS = 8.0
_ALONG = 1e-6
"""Share of the square of a part that must be left of it; else it lies along the parts before it."""
_LARGEST = 2**12
"""Elements of a tensor, at most, that is joined with others: copies of larger ones cost more than they save."""
_LARGEST_MATRIX = 2**16
"""Elements of a matrix, at most, that is joined with others although it is not updated by element."""

_States = Mapping[tuple[int, str], Mapping[str, tuple[Mapping[str, Tensor], str]]]
"""The optimizer's entries by step and parameter: tensors of that step, and the name of the entry there."""


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


def _part_sums(rows: Tensor, sizes: Tensor, unit: float, side: int) -> list[_Sums]:
    """Return the sums of each part of one tensor, whose smaller side is `side`. Changes `rows`.

    `rows` are `[parts + 1, elements]`, with the error last. `sizes` are of the replayed weights, and `unit` is the
    roundoff of their dtype.
    """
    gram = (rows @ rows.T).tolist()
    lengths = _less_earlier(rows, gram)
    squares, structured = rows.square(), gram[-1][-1] / side
    found = torch.stack([squares[:-1] @ squares[-1], rows[:-1].abs() @ sizes]).T.tolist()
    return [
        _Sums(product, length, variance, structured * length, unit * rounding)
        for product, length, (variance, rounding) in zip(gram[-1], lengths, found, strict=False)
    ]


def _less_earlier(rows: Tensor, gram: list[list[float]]) -> list[float]:
    """Take from each row but the last what lies along those before it, and return the squares of the rest.

    A square is 0 if nothing is left. `gram` are the rows' products with each other, which change with them.
    """
    squares: list[float] = []
    for place in range(len(rows) - 1):
        whole = gram[place][place]
        for earlier, square in enumerate(squares):
            if square:
                share = gram[place][earlier] / square
                rows[place].sub_(rows[earlier], alpha=share)
                gram[place] = [one - share * other for one, other in zip(gram[place], gram[earlier], strict=True)]
                for products in gram:
                    products[place] -= share * products[earlier]
        left = gram[place][place]
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
    standard errors. Those are one kind that a rule updates element by element, and all others are another. An update
    that equals the replayed one takes no part.
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
        whole = self._parts(weight, wanted, rate * self._rule.decay(before))
        rows, unit = torch.stack([*whole.values(), after.flatten() - wanted]), unit_roundoff(after.dtype)
        elements = [shape.numel() for shape in shapes]
        pieces = zip(shapes, torch.split(rows, elements, -1), torch.split(wanted.abs(), elements), strict=True)
        sums = (_part_sums(own, sizes, unit, min(shape, default=1)) for shape, own, sizes in pieces)
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

    def _parts(self, weight: Tensor, wanted: Tensor, amount: float) -> dict[str, Tensor]:
        """Return a replayed step, its decay by an amount, and what was spared; a cautious step never opposes decay."""
        if not amount:
            return {"step": wanted - weight}
        whole = -amount * weight
        if not self._rule.cautious:
            return {"step": torch.sub(wanted, weight, alpha=1 - amount), "decay": whole}
        moved = wanted - weight
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
            # The loss of a user's own model need not use all parameters; gradients are held against the baseline's.
            own = expected.model.own is not None
            yield _stayed(step, name) if own else Judged("update", name, step.index, math.inf, math.inf)
            continue
        if rule.rounds_state:
            state = kept(step.index) or state
        weight = step.before[name]
        rows = recorded.padded_rows.get(name)
        given = weight, step.gradients[name]
        whole, gradient = given if rows is None else (nearness.pad_rows(one, rows) for one in given)
        earlier = dict(state)
        replayed = _unpadded(rule.update(name, whole, gradient, state, step.rate), weight)
        yield _updated(step, name, replayed, (whole, gradient, earlier), expected, parts)
        moments = kept(step.index + 1)
        for key in sorted(moments.keys() - {"steps"}):
            coarse = _is_coarse(rule, weight.dtype, key)
            yield nearness.state(step.index, f"{key} of {name}", moments[key], state[key], rounded=coarse)


def _unpadded(updated: Tensor, weight: Tensor) -> Tensor:
    """Return the rows of a replayed weight that the weight has; a weight of one number has no rows."""
    return updated if updated.shape == weight.shape else updated[: len(weight)]


def _updated(
    step: _Step,
    name: str,
    replayed: Tensor,
    given: tuple[Tensor, Tensor, State],
    expected: Expected,
    parts: UpdateParts,
) -> Judged:
    """Judge a weight after an update, and add one that is lossy and differs from its replay to `parts`.

    The replay was given a weight, a gradient and a state.
    """
    rule, weight, found = expected.rule, step.before[name], step.after[name]
    rounded, close = rule.rounds_weight, expected.closeness_of(name, weight)
    compared = partial(nearness.update, step.index, name, weight, found, replayed, close, rounded=rounded)
    judged = compared()
    if judged.failed and not rounded:
        whole, gradient, state = given
        shaken = rule.update(name, whole, off_by_a_roundoff(gradient, step.index), state, step.rate)
        judged = compared(shaken=_unpadded(shaken, weight))
    if close.kind == "lossy" and judged.error:
        (sums,) = parts.sums_of_each([weight.shape], step.rate, weight, found, replayed)
        parts.add(name, step.index, weight, sums)
    return judged


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
        by_element = rule.by_element(name, weight)
        small = weight.numel() <= (_LARGEST if by_element else _LARGEST_MATRIX)
        plain = rule.rounds_weight or weight.dtype is torch.float32
        if small and plain and all(name in step.gradients for step in steps):
            kinds[by_element, weight.ndim >= 2, rule.rate_factor(name), weight.dtype].append(name)
    judged: dict[str, list[Judged]] = {}
    for (each, *_), members in kinds.items():
        shapes = [steps[0].before[name].shape for name in members]
        own = rule if each else rule.joined(shapes)
        if own is None:
            continue
        joined = _Joined(members, shapes, own)
        found, sums = joined.judged(steps, states, expected, parts)
        passed = {name: own for name, own in found.items() if not any(one.failed for one in own)}
        for (name, step), one in sums.items():
            if name in passed:
                parts.add(name, step, steps[0].before[name], one)
        judged |= passed
    return judged


@dataclass(frozen=True)
class _Joined:
    """Tensors that a rule treats alike: all have one factor of the rate, and all decay or none does."""

    names: list[str]
    shapes: list[torch.Size]
    rule: Rule

    def judged(
        self, steps: Sequence[_Step], states: _States, expected: Expected, parts: UpdateParts
    ) -> tuple[dict[str, list[Judged]], dict[tuple[str, int], dict[str, _Sums]]]:
        """Judge all tensors after each update; nothing if their states cannot be joined.

        The second answer has the sums of lossy updates, by tensor and step.
        """
        found: dict[str, list[Judged]] = defaultdict(list)
        sums: dict[tuple[str, int], dict[str, _Sums]] = {}
        rule, state = self.rule, self._state(states, steps[0].index)
        close = expected.closeness_of(self.names[0], steps[0].before[self.names[0]])
        for step in steps:
            moments = self._state(states, step.index + 1)
            if state is None or moments is None:
                return {}, {}
            before, after, gradient = (
                self._join([of[name] for name in self.names]) for of in (step.before, step.after, step.gradients)
            )
            replayed = rule.update(self.names[0], before, gradient, state, step.rate)
            keys = sorted(moments.keys() - {"steps"})
            if nearness.same(after, replayed) and all(nearness.same(moments[key], state[key]) for key in keys):
                for name in self.names:
                    found[name].append(Judged("update", name, step.index, 0.0, 0.0))
                    found[name] += (Judged("state", f"{key} of {name}", step.index, 0.0, 0.0) for key in keys)
                continue
            replayed = replayed.double()
            pairs = [(moments[key].double() - state[key].double(), state[key]) for key in keys]
            norms = self._norms(after - replayed, replayed - before, replayed, *chain(*pairs))
            for name, own in zip(self.names, norms, strict=True):
                found[name] += self._of_tensor(step.index, name, own, keys, close, after.dtype)
            if close.kind == "lossy":
                each = parts.sums_of_each(self.shapes, step.rate, before, after, replayed)
                differ = (error > 0 for error, *_ in norms)
                sums |= {
                    (name, step.index): one for name, one, off in zip(self.names, each, differ, strict=True) if off
                }
        return found, sums

    def _of_tensor(
        self, step: int, name: str, norms: Sequence[float], keys: Sequence[str], close: Closeness, dtype: torch.dtype
    ) -> Iterator[Judged]:
        """Judge a weight of a `dtype` by the norms of its error, movement and size, and its moments by theirs."""
        (error, moved, size, *others), rounded = norms, self.rule.rounds_weight
        yield nearness.update_of(step, name, error, moved, size, close, dtype, rounded=rounded)
        for key, off, whole in zip(keys, others[::2], others[1::2], strict=True):
            coarse = _is_coarse(self.rule, dtype, key)
            yield nearness.state_of(step, f"{key} of {name}", off, whole, rounded=coarse)

    def _join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return all elements of the tensors, as one row of a matrix if the tensors are matrices."""
        whole = torch.cat([one.reshape(-1) for one in tensors])
        return whole[None] if len(self.shapes[0]) >= 2 else whole

    def _state(self, states: _States, step: int) -> State | None:
        """Return the joined state before a step, in the replay's form; None if the tensors' states are not alike."""
        entries = [states.get((step, name), {}) for name in self.names]
        if any(one.keys() != entries[0].keys() for one in entries):
            return None
        joined: dict[str, Tensor] = {}
        for key in entries[0]:
            parts = [tensors[entry] for tensors, entry in (one[key] for one in entries)]
            if key != "step" and [part.numel() for part in parts] == self._sizes:
                joined[key] = self._join(parts)
            elif [part.shape for part in parts] == [(rows, 1) for rows in self._rows]:
                joined[key] = torch.cat(parts)
            elif all(torch.equal(part, parts[0]) for part in parts[1:]):
                joined[key] = parts[0]
            else:
                return None
        return self.rule.adopt(joined) if joined else {}

    @property
    def _sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def _rows(self) -> list[int]:
        """Rows of each matrix, of which a moment may have one number each."""
        return [shape[0] for shape in self.shapes if len(shape) >= 2]

    def _norms(self, *joined: Tensor) -> list[list[float]]:
        """Return the norms of each tensor's part of what is joined, tensor by tensor."""
        parts = [
            part
            for one in joined
            for part in torch.split(one.flatten(), self._rows if one.shape[1:] == (1,) else self._sizes)
        ]
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
