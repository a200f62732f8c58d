"""Updates of many small tensors, replayed as one: in a small model operators cost more than their arithmetic.

An optimizer that updates each element by itself does to tensors that are joined what it does to each of them. So small
tensors of one kind are joined, replayed together, and judged one by one as `without_reference` judges them. What does
not pass here is left to that slow replay, which alone says that an update is wrong.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.reference.expected import Expected
from assay.reference.rules import Rule, State
from assay.values import nearness
from assay.values.nearness import Judged
from assay.values.recorded_updates import States, UpdateStep, is_coarse

_LARGEST = 2**12
"""Elements of a tensor, at most, that is joined with others: copies of larger ones cost more than they save."""


def joined_updates(
    steps: Sequence[UpdateStep], states: States, names: Sequence[str], expected: Expected
) -> dict[str, list[Judged]]:
    """Return the weights and moments of small tensors after each update, by name; without those that do not pass."""
    rule = expected.rule
    if not steps or expected.updates.kind == "lossy" or rule.rounds_state or rule.rounds_weight:
        return {}
    kinds: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name in names:
        weight = steps[0].before[name]
        small = weight.numel() <= _LARGEST and weight.dtype is torch.float32
        if small and rule.by_element(name, weight) and all(name in step.gradients for step in steps):
            kinds[weight.ndim >= 2, rule.rate_factor(name)].append(name)
    judged: dict[str, list[Judged]] = {}
    for (matrices, _), members in kinds.items():
        joined = _Joined(members, [steps[0].before[name].numel() for name in members], bool(matrices))
        judged |= joined.judged(steps, states, expected)
    return {name: found for name, found in judged.items() if not any(one.failed for one in found)}


@dataclass(frozen=True)
class _Joined:
    """Tensors that a rule treats alike: all have one factor of the rate, and all decay or none does."""

    names: list[str]
    sizes: list[int]
    matrices: bool

    def judged(self, steps: Sequence[UpdateStep], states: States, expected: Expected) -> dict[str, list[Judged]]:
        """Judge all tensors after each update; nothing if their states cannot be joined."""
        found: dict[str, list[Judged]] = defaultdict(list)
        rule, state = expected.rule, self._state(states, expected.rule, steps[0].index)
        for step in steps:
            moments = self._state(states, rule, step.index + 1)
            if state is None or moments is None:
                return {}
            before, after, gradient = map(self._join, (step.before, step.after, step.gradients))
            replayed = rule.update(self.names[0], before, gradient, state, step.rate).double()
            keys = sorted(moments.keys() - {"steps"})
            pairs = [(moments[key].double() - state[key].double(), state[key]) for key in keys]
            norms = self._norms(after - replayed, replayed - before, replayed, *(one for pair in pairs for one in pair))
            for name, (error, moved, size, *others) in zip(self.names, norms, strict=True):
                found[name].append(nearness.update_of(step.index, name, error, moved, size, expected.updates))
                for place, key in enumerate(keys):
                    off, whole = others[2 * place : 2 * place + 2]
                    coarse = is_coarse(rule, before.dtype, key)
                    found[name].append(nearness.state_of(step.index, f"{key} of {name}", off, whole, rounded=coarse))
        return found

    def _join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return all elements of the tensors, as one row of a matrix if the tensors are matrices."""
        return self._flat([tensors[name] for name in self.names])

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        whole = torch.cat([one.reshape(-1) for one in tensors])
        return whole[None] if self.matrices else whole

    def _state(self, states: States, rule: Rule, step: int) -> State | None:
        """Return the joined state before a step, in the replay's form; None if the tensors' states are not alike."""
        entries = [states.get((step, name), {}) for name in self.names]
        if any(one.keys() != entries[0].keys() for one in entries):
            return None
        joined: dict[str, Tensor] = {}
        for key in entries[0]:
            parts = [tensors[entry] for tensors, entry in (one[key] for one in entries)]
            if [part.numel() for part in parts] == self.sizes and key != "step":
                joined[key] = self._flat(parts)
            elif all(torch.equal(part, parts[0]) for part in parts[1:]):
                joined[key] = parts[0]
            else:
                return None
        return rule.adopt(joined) if joined else {}

    def _norms(self, *joined: Tensor) -> list[list[float]]:
        """Return the norms of each tensor's part of what is joined, tensor by tensor."""
        parts = [part for one in joined for part in torch.split(one.flatten(), self.sizes)]
        norms = torch.stack(torch._foreach_norm(parts, 2, dtype=torch.float64))
        found: list[list[float]] = norms.view(len(joined), -1).T.tolist()
        return found
