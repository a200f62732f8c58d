"""Recorded updates against the optimizer's rule, replayed from the weight before and the program's own gradient."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.reference.expected import Expected
from assay.reference.rules import Rule, State
from assay.values import nearness
from assay.values.nearness import Judged
from assay.values.rates import rate
from assay.values.recorded import Recorded, RecordedStep


def judged_updates(recorded: Recorded, run: ResolvedRun, expected: Expected) -> list[Judged]:
    """Return every weight after every update, and every moment, each with its error relative to its bound."""
    states = _states(recorded, expected.rule, recorded.first)
    return [one for step in recorded.steps if step.updated for one in _updated(recorded, step, run, expected, states)]


def _updated(
    recorded: Recorded, step: RecordedStep, run: ResolvedRun, expected: Expected, states: dict[str, State]
) -> Iterator[Judged]:
    """Judge the weights and moments after one update; `states` are the replay's, which moves on."""
    before, after, gradients = (
        recorded.tensors(kind, index)
        for kind, index in (("weight", step.index), ("weight", step.index + 1), ("gradient", step.index))
    )
    now, rule = rate(run.training, step.index) * expected.rate_factor, expected.rule
    if rule.rounds_state:
        states.update(_states(recorded, rule, step.index))
    kept = _states(recorded, rule, step.index + 1)
    for name, weight in before.items():
        if name not in gradients:
            yield Judged("update", name, step.index, float("inf"), float("inf"))
            continue
        rows, state = recorded.padded_rows.get(name, len(weight)), states.setdefault(name, {})
        whole, gradient = (nearness.padded(one, rows) for one in (weight, gradients[name]))
        earlier = dict(state)
        replayed = rule.update(name, whole, gradient, state, now)[: len(weight)]
        compared = partial(
            nearness.update,
            step.index,
            name,
            weight,
            after[name],
            replayed,
            expected.updates,
            rounded=rule.rounds_weight,
        )
        judged = compared()
        if judged.failed and not rule.rounds_weight:
            off = rule.update(name, whole, off_by_a_roundoff(gradient, step.index), earlier, now)
            judged = compared(shaken=off[: len(weight)])
        yield judged
        for key in sorted(kept.get(name, {}).keys() - {"steps"}):
            coarse = rule.rounds_state or weight.dtype.itemsize < 4
            yield nearness.state(step.index, f"{key} of {name}", kept[name][key], state[key], rounded=coarse)


def off_by_a_roundoff(gradient: Tensor, seed: int) -> Tensor:
    """Return a gradient of which each element is off by a roundoff of float32, up or down.

    Where decay cancels a gradient, one element can be most of an update's error. So none may stay as it is by chance.
    """
    noise = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, gradient.shape, generator=noise).to(gradient.device).double() * 2 - 1
    return gradient.double() * (1 + nearness.unit_roundoff(torch.float32) * signs)


def _states(recorded: Recorded, rule: Rule, step: int) -> dict[str, State]:
    """Return the optimizer's state before a step, in the replay's form."""
    entries: dict[str, dict[str, Tensor]] = {}
    for name, one in recorded.tensors("state", step).items():
        parameter, _, key = name.partition("|")
        entries.setdefault(parameter, {})[key] = one
    return {name: rule.adopt(own) for name, own in entries.items()}
