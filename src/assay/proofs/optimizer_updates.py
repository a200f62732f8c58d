"""Checks for the proofs of optimizers: every parameter is updated, and every group has the promised settings.

Weight decay applies to matrices and embeddings, not to vectors (biases and the gains of norms). A parameter counts as
updated if each of its elements was written by the right operator exactly once in the step.
"""

from collections.abc import Iterable
from math import isclose

from assay.config import TrainingConfig
from assay.cost.matrix_updates import is_hidden_matrix
from assay.records.trace import Group, Setting, Trace, Updated

_SAME = 1e-6
"""Relative tolerance of a setting, which may have been rounded to float32."""


def updated_by(trace: Trace, *operators: str) -> int:
    """Number of parameters whose every element was written once by the given operators together."""
    return sum(_times(one, operators) == one.elements for one in trace.optimizer.updates)


def compiled_updates(trace: Trace) -> int:
    """Number of parameters that compiled code changed in place once; it shows no operators."""
    return sum(one.changes == 1 and not one.written for one in trace.optimizer.updates)


def whole_updates(trace: Trace) -> int:
    """Number of parameters of which a single operator wrote every element at least once, or that have no elements."""
    updates = trace.optimizer.updates
    return sum(one.elements == 0 or max(one.written.values(), default=0) >= one.elements for one in updates)


def faults(trace: Trace, weight_decay: float, **settings: Setting) -> str:
    """Describe how groups and update counts differ from the promised ones; empty if they do not.

    If a group has one of `settings`, it must have the given value.
    """
    found = list(_of_groups(trace, weight_decay, settings))
    grouped = {name for group in trace.optimizer.groups for name in group.parameters}
    if left := len({one.name for one in trace.trained} - grouped):
        found.append(f"{left} of {len(trace.trained)} parameters are in no parameter group")
    if len(counts := {one.steps for one in trace.optimizer.updates if one.steps is not None}) > 1:
        found.append(f"the update counts of parameters differ: {min(counts):g} to {max(counts):g}")
    return "".join(f", but {one}" for one in found)


def adamw_faults(trace: Trace, training: TrainingConfig) -> str:
    """Describe how AdamW's groups and update counts differ from those of `training`; empty if they do not."""
    betas = (training.beta1, training.beta2)
    return faults(trace, training.weight_decay, betas=betas, eps=training.epsilon)


def decay_at(training: TrainingConfig, learning_rate: float) -> float:
    """Weight decay at `learning_rate` that shrinks a weight per step as much as the configured one does."""
    return training.weight_decay * training.learning_rate / learning_rate


def _of_groups(trace: Trace, weight_decay: float, settings: dict[str, Setting]) -> Iterable[str]:
    matrices = {one.name for one in trace.parameters if len(one.whole_shape) >= 2}
    groups, rate = trace.optimizer.groups, trace.optimizer.learning_rate
    wrong = sum(
        not _same(group.settings.get("weight_decay", 0.0), weight_decay if name in matrices else 0.0)
        for group in groups
        for name in group.parameters
    )
    if wrong:
        yield f"the weight decay of {wrong} parameters is not {weight_decay:g} for matrices and 0 for vectors"
    wanted = settings if rate is None else {**settings, "lr": rate}
    for name, value in wanted.items():
        if others := sorted({str(_of(group, name)) for group in groups if not _has(group, name, value)}):
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


_PRODUCTS = 15
"""Products of one matrix: three in each of the five steps."""


def hidden_matrices(trace: Trace) -> set[str]:
    """Names of the hidden matrices that this process updates."""
    return {one.name for one in trace.trained if is_hidden_matrix(one.name, len(one.whole_shape))}


def orthogonal_updates(trace: Trace) -> tuple[str, bool]:
    """Describe the products and updates of a step, and return whether they are those of all parameters."""
    hidden = len(hidden_matrices(trace))
    products, rest = trace.contractions(phase="update", dtype="bfloat16"), trace.count("addcdiv_", phase="update")
    observed = f"{products} products updated {hidden} hidden matrices; AdamW updated {rest} other parameters"
    # The step of a matrix is added; AdamW's is divided by the root of its second moment.
    moved, divided = (updated_by(trace, f"aten.{one}") for one in ("add_.Tensor", "addcdiv_"))
    if (moved, divided) != (hidden, rest):
        observed += f"; {moved} matrices and {divided} others were updated completely"
    whole = products == _PRODUCTS * moved > 0 and moved == hidden and divided == rest
    return observed, whole and rest == len(trace.trained) - hidden
