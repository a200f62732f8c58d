"""Checks that proofs of optimizers share: every parameter is updated, and every group decays and steps as promised.

An optimizer decays matrices and embeddings, and spares vectors (biases and the gains of norms). A parameter counts as
updated when each of its elements was written by the right operator exactly once in the step.
"""

from collections.abc import Iterable
from math import isclose

from assay.config import TrainingConfig
from assay.step.trace import Trace
from assay.step.updated import Group, Setting, Updated

_SAME = 1e-6
"""Relative difference that rounding a setting to float32 explains."""


def updated_by(trace: Trace, *operators: str) -> int:
    """Number of parameters of which every element was written once by one of some operators."""
    return sum(_times(one, operators) == one.elements for one in trace.updates)


def updated(trace: Trace) -> int:
    """Number of parameters of which one operator at least wrote every element."""
    return sum(one.elements == 0 or max(one.written.values(), default=0) >= one.elements for one in trace.updates)


def faults(trace: Trace, weight_decay: float, **settings: Setting) -> str:
    """Say how groups and counts differ from what is promised; empty when nothing differs.

    Where a group has one of `settings`, its value must be the given one.
    """
    found = list(_of_groups(trace, weight_decay, settings))
    grouped = {name for group in trace.groups for name in group.parameters}
    if left := len({one.name for one in trace.parameters} - grouped):
        found.append(f"{left} of {len(trace.parameters)} parameters are in no group")
    if len(counts := {one.steps for one in trace.updates if one.steps is not None}) > 1:
        found.append(f"parameters have counted {min(counts):g} to {max(counts):g} updates")
    return "".join(f", but {one}" for one in found)


def adamw_faults(trace: Trace, training: TrainingConfig) -> str:
    """Say the same of AdamW's groups."""
    betas = (training.beta1, training.beta2)
    return faults(trace, training.weight_decay, betas=betas, eps=training.epsilon)


def decay_at(training: TrainingConfig, learning_rate: float) -> float:
    """The weight decay that shrinks a weight as much a step at another learning rate."""
    return training.weight_decay * training.learning_rate / learning_rate


def _of_groups(trace: Trace, weight_decay: float, settings: dict[str, Setting]) -> Iterable[str]:
    matrices = {one.name for one in trace.parameters if len(one.whole_shape) >= 2}
    wrong = sum(
        not _same(group.settings.get("weight_decay", 0.0), weight_decay if name in matrices else 0.0)
        for group in trace.groups
        for name in group.parameters
    )
    if wrong:
        yield f"the weight decay of {wrong} parameters is not {weight_decay:g} for matrices and 0 for vectors"
    wanted = settings if trace.learning_rate is None else {**settings, "lr": trace.learning_rate}
    for name, value in wanted.items():
        if others := sorted({str(_of(group, name)) for group in trace.groups if not _has(group, name, value)}):
            yield f"{name} is {' and '.join(others)} instead of {value}"


def _times(one: Updated, operators: Iterable[str]) -> int:
    return sum(one.written.get(operator, 0) for operator in operators)


def _of(group: Group, name: str) -> Setting | None:
    return group.settings.get(name)


def _has(group: Group, name: str, value: Setting) -> bool:
    return name not in group.settings or _same(group.settings[name], value)


def _same(one: Setting, other: Setting) -> bool:
    ours, theirs = ((value,) if isinstance(value, float | int) else value for value in (one, other))
    return len(ours) == len(theirs) and all(isclose(a, b, rel_tol=_SAME) for a, b in zip(ours, theirs, strict=True))
