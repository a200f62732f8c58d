"""Recorded updates against the optimizer's rule, replayed from the weight before and the program's own gradient."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.reference.expected import Expected
from assay.reference.rules import Rule, State
from assay.values import nearness
from assay.values.nearness import Judged
from assay.values.rates import rate
from assay.values.recorded import Recorded


def judged_updates(recorded: Recorded, run: ResolvedRun, expected: Expected) -> list[Judged]:
    """Return every weight after every update, and every moment, each with its error relative to its bound.

    One parameter after the other is replayed, so the states of few of them are alive at once.
    """
    steps = [_Step.of(recorded, one.index, run, expected) for one in recorded.steps if one.updated]
    return [one for name in (steps[0].before if steps else ()) for one in _replayed(recorded, steps, name, expected)]


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
        before, after = (recorded.tensors("weight", place) for place in (index, index + 1))
        now = rate(run.training, index) * expected.rate_factor
        return cls(index, now, before, after, recorded.tensors("gradient", index))


def _replayed(recorded: Recorded, steps: Sequence[_Step], name: str, expected: Expected) -> Iterator[Judged]:
    """Judge one parameter and its moments after each update."""
    rule, state = expected.rule, _state(recorded, expected.rule, recorded.first, name)
    for step in steps:
        if name not in step.gradients:
            yield Judged("update", name, step.index, float("inf"), float("inf"))
            continue
        if rule.rounds_state:
            state = _state(recorded, rule, step.index, name) or state
        weight = step.before[name]
        rows = recorded.padded_rows.get(name, len(weight))
        whole, gradient = (nearness.padded(one, rows) for one in (weight, step.gradients[name]))
        earlier = dict(state)
        replayed = rule.update(name, whole, gradient, state, step.rate)[: len(weight)]
        compared = partial(
            nearness.update,
            step.index,
            name,
            weight,
            step.after[name],
            replayed,
            expected.updates,
            rounded=rule.rounds_weight,
        )
        judged = compared()
        if judged.failed and not rule.rounds_weight:
            off = rule.update(name, whole, off_by_a_roundoff(gradient, step.index), earlier, step.rate)
            judged = compared(shaken=off[: len(weight)])
        yield judged
        kept = _state(recorded, rule, step.index + 1, name)
        for key in sorted(kept.keys() - {"steps"}):
            coarse = rule.rounds_state or weight.dtype.itemsize < 4
            yield nearness.state(step.index, f"{key} of {name}", kept[key], state[key], rounded=coarse)


def off_by_a_roundoff(gradient: Tensor, seed: int) -> Tensor:
    """Return a gradient of which each element is off by a roundoff of float32, up or down.

    Where decay cancels a gradient, one element can be most of an update's error. So none may stay as it is by chance.
    """
    noise = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, gradient.shape, generator=noise).to(gradient.device).double() * 2 - 1
    return gradient.double() * (1 + nearness.unit_roundoff(torch.float32) * signs)


def _state(recorded: Recorded, rule: Rule, step: int, name: str) -> State:
    """Return the optimizer's state of one parameter before a step, in the replay's form; empty if it has none."""
    entries, own = recorded.tensors("state", step), f"{name}|"
    found = {one.removeprefix(own): entries[one] for one in entries if one.startswith(own)}
    return rule.adopt(found) if found else {}
