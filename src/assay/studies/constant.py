"""A quantity that is the same in all rows: one setting of each row is solved for it.

Twice the batch at as many steps is twice the tokens, so the two rows differ in more than the batch. Held constant, the
tokens of every row are the control's, and the number of steps follows. The solved setting is a whole number, so a row
may miss the quantity a little. The plan and the answer say by how much.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field, PrivateAttr

from assay.config.base import Setting
from assay.config.home import Home
from assay.config.loading import load
from assay.config.run import ResolvedRun, Run
from assay.cost import parameter_count
from assay.errors import UsageError
from assay.optimizations import resolve_run
from assay.units import format_count, format_percent

Quantity = Literal[
    "tokens_per_step", "tokens", "iterations", "parameters", "flops_per_step", "step_seconds", "tensors_peak_bytes"
]

_BY: Mapping[Quantity, str] = {
    "tokens_per_step": "training.batch_size",
    "tokens": "training.steps",
    "iterations": "training.steps",
    "parameters": "model.n_embd",
    "flops_per_step": "model.n_embd",
    "step_seconds": "training.batch_size",
    "tensors_peak_bytes": "training.batch_size",
}
"""Setting that is solved for each quantity, unless a study names another one. The quantity grows with it."""

_LARGEST = 2**24
"""Largest value of a setting that is tried."""


class HeldQuantity(Setting):
    """A quantity that every row has as the control has it."""

    quantity: Quantity
    by: str = ""
    """Key of the setting that is solved: a whole number with which the quantity grows. Empty: a usual one."""
    multiple_of: int = Field(default=1, ge=1)
    """The setting is a multiple of this number, such as the number of heads for ``model.n_embd``."""
    within: float = Field(default=0.25, gt=0.0)
    """Largest relative deviation from the control that is accepted."""

    _home: Home | None = PrivateAttr(default=None)
    """Home with the rates of this machine, by which times are predicted. None: the usual one."""

    def in_home(self, home: Home) -> "HeldQuantity":
        """Return the same quantity, predicted by the rates of a home."""
        found = self.model_copy()
        found._home = home
        return found

    @property
    def key(self) -> str:
        """Key of the setting that is solved."""
        return self.by or _BY[self.quantity]

    def held(self, run: ResolvedRun, control: ResolvedRun) -> ResolvedRun:
        """Return a row's run with its setting solved. Raises `UsageError` if the quantity cannot come near enough."""
        target = self.of(control)
        if self.of(run) == target:
            return run
        found = self._with(run, nearest(lambda value: self.of(self._with(run, value)), target, self._multiple(run)))
        if abs(self.of(found) / target - 1) > self.within:
            raise UsageError(
                f"{self.quantity} cannot be held constant by {self.key}: the nearest is {self.of(found):.4g}, and the "
                f"control has {target:.4g}; name another key as by"
            )
        return found

    def of(self, run: ResolvedRun) -> float:
        """Return the quantity of a run. Raises `UsageError` if it is not known before the text is prepared."""
        training = run.training
        if self.quantity in ("tokens_per_step", "tokens", "iterations"):
            per_step = 1 if self.quantity == "iterations" else run.tokens_per_step
            return per_step * (1 if self.quantity == "tokens_per_step" else training.steps)
        known = run.with_vocabulary()
        if known.model.vocab_size is None:
            raise UsageError(
                f"{self.quantity} depends on the vocabulary, which is not known before the text is prepared; give "
                "model.vocab_size"
            )
        return float(parameter_count(known.model)) if self.quantity == "parameters" else self._predicted(known)

    def _predicted(self, run: ResolvedRun) -> float:
        from assay.estimator import estimate
        from assay.hardware.rates import known_machine
        from assay.launch.prepare import threads_of

        name = "step_flops" if self.quantity == "flops_per_step" else self.quantity
        value = estimate(run.asked(), known_machine(self._home or Home(), threads_of(run))).predicted()[name]
        if value is None:
            raise UsageError(f"{self.quantity} cannot be predicted here; `assay machine` measures what it needs")
        return float(value)

    def _with(self, run: ResolvedRun, value: int) -> ResolvedRun:
        return resolve_run(load(run.asked(), [f"{self.key}={value}"]))

    def _multiple(self, run: Run) -> int:
        """Return the number of which the setting is a multiple; a head's share of the width must be even."""
        if self.multiple_of == 1 and self.key == "model.n_embd":
            return 2 * run.model.n_head
        return self.multiple_of


def sentence(constant: HeldQuantity, rows: Mapping[str, ResolvedRun]) -> str:
    """Return which setting each row has, and by how much it misses the quantity; the first row is the control."""
    (_, control), *others = rows.items()
    target = constant.of(control)
    parts = []
    for label, run in others:
        miss = constant.of(run) / target - 1
        parts.append(f"{_value(run, constant.key)} in {label}{f' ({format_percent(miss)})' if miss else ''}")
    return (
        f"{constant.quantity} is held at {format_count(target)} by {constant.key}, "
        f"{_value(control, constant.key)} in the control: {'; '.join(parts)}."
    )


def _value(run: Run, key: str) -> object:
    found: object = run
    for part in key.split("."):
        found = getattr(found, part)
    return found


def nearest(quantity: Callable[[int], float], target: float, multiple_of: int = 1) -> int:
    """Return the multiple whose quantity is nearest to the target; `quantity` must grow with its argument.

    Of two that are equally near, the smaller one counts. The largest multiple up to 2^24 is the last that is tried.
    """
    low, high = 1, 1
    while quantity(high * multiple_of) < target and high * multiple_of < _LARGEST:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if quantity(middle * multiple_of) < target:
            low = middle + 1
        else:
            high = middle
    below = max(1, low - 1)
    misses = [(abs(quantity(one * multiple_of) - target), one) for one in (below, low)]
    return min(misses)[1] * multiple_of
