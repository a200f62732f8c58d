"""A sample of every update of a run, replayed by the optimizer's rule: a cheap look at all steps.

A few tensors and a few elements of each are drawn anew for every step, from the run's seed. They are read when the
optimizer is about to use the gradient, and once more after the step. Rules that compute each element by itself replay
the elements. Of other rules only is seen whether the weight moves. Between two steps no weight may change: the elements
of the next step are read at the end of this one as well.

So an update that is left out, made twice, at another rate or from another moment is seen in its step. A weight that is
rounded afterwards is seen, too. A fault in few elements of a tensor, or in its gradient, is not.

With dropout the generator's state is kept, too: two steps that begin with the same state draw the same masks.

Over ranks each watches the shards that it updates. One that stopped alone would leave the others waiting. So it keeps
its first fault until all ranks ask for it.
"""

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from assay.config import ResolvedRun
from assay.optimizations import expected_of
from assay.parallel.dtensor import local
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.device_queue import copied_to
from assay.step.program import Step
from assay.training.loop import TakeStep
from assay.training.probes import ActivationNorms
from assay.training.queued_step import Taken
from assay.training.step_record import StepRecord
from assay.training.stops import WrongValues
from assay.values.nearness import unit_roundoff
from assay.values.rate_rule import rate
from assay.values.recorder import used_gradient

_TENSORS, _ELEMENTS = 2, 16
_WEIGHT_ROUNDOFFS, _STEP_ERROR = 4.0, 2e-3
"""Error of an updated element that rounding explains: units of the weight's last place, and a part of its step."""
_STATE_ERROR = 0.05
"""Relative error of an element of the optimizer's state."""
_COUNT = "step"
"""Key of the number of updates in a state, which may have the shape of a parameter of one number."""
_ODD = 0.25
"""Share of a tensor's elements that may be off: sums that nearly cancel, and the signs that a rule takes of them."""

Entries = Mapping[str, Tensor]


@dataclass
class _Elements:
    """Sampled elements of one parameter, with what was read of them at the end of a step and during the next one."""

    name: str
    parameter: Tensor
    places: Tensor
    carried: Tensor
    """Values of the weight at the end of the step before."""
    carried_state: Entries
    before: Tensor | None = None
    """Values when the optimizer is about to update them; None without a gradient."""
    gradient: Tensor | None = None
    unused: bool = False
    """True if the loss of a user's own model did not use the parameter, while the optimizer updates others."""
    state: Entries = field(default_factory=dict)
    after: Tensor | None = None
    state_after: Entries = field(default_factory=dict)


class UpdateWatch:
    """Watches the steps of one process, of which `updates` were replayed so far. Reads in the context `aside`."""

    def __init__(
        self,
        run: ResolvedRun,
        step: Step,
        aside: Callable[[], AbstractContextManager[object]] = nullcontext,
        ranks: Ranks = ALONE,
    ) -> None:
        self.updates = 0
        self._off_the_clock, self._ranks, self._kept_fault = aside, ranks, ""
        self._run, self._step, self._expected = run, step, expected_of(run)
        self._draws_masks = run.model.dropout > 0 and run.model.own is None
        watched = [
            (step.stored_name(name), one)
            for name, one in step.optimized
            if local(one).numel() and one.layout == torch.strided
        ]
        proven = bool(run.optimizations) and run.training.check_values and not self._expected.unstated
        self._parameters = watched if proven else []
        self._began_with: dict[bytes, int] = {}
        self._read: dict[int, list[_Elements]] = {}
        """Elements of steps whose figures are not read yet, by step."""
        self._next: tuple[int, list[_Elements]] = (-1, [])
        self._spent = 0.0

    def taking(self, take: TakeStep) -> TakeStep:
        """Wrap `take`, so that its steps are watched. Reading is not counted in their seconds."""
        if not self._parameters:
            return take

        def watched(step: Step, index: int, probes: ActivationNorms | None) -> StepRecord | Taken:
            at, elements = self._next
            with self._off_the_clock():
                self._read[index] = elements = elements if at == index else self._drawn(index)
                self._note_noise(index)
            self._spent = 0.0
            handle = register_optimizer_step_pre_hook(partial(self._before_update, elements))
            try:
                taken = take(step, index, probes)
            finally:
                handle.remove()
            # While an accelerator has queued steps to do, looking at the host's side stops nothing that is timed.
            spent = 0.0 if isinstance(taken, Taken) and step.program.device.type != "cpu" else self._spent
            with self._off_the_clock(), _aside():
                for one in elements:
                    one.after, one.state_after = self._weight(one), self._state(one)
                self._next = index + 1, self._drawn(index + 1)
            return replace(taken, seconds=max(taken.seconds - spent, 0.0))

        return watched

    def close(self) -> None:
        """Forget the elements that were read, so that no figure of memory contains them."""
        self._read, self._next = {}, (-1, [])

    def stepped(self, record: StepRecord) -> None:
        """Replay the watched elements of a step, once it is known that it made its update.

        Raises `WrongValues` if a value is wrong, and over ranks leaves that to `conclude`.
        """
        elements = self._read.pop(record.step, [])
        if record.skipped or not record.finite or not elements:
            return
        now = rate(self._run.training, record.step) * self._expected.rate_factor
        used = [one for one in elements if not one.unused]
        if not any(one.before is not None for one in used) and now > 0:
            unmoved = [one for one in used if one.after is not None and torch.equal(one.after, one.carried)]
            if unmoved and all(self._expected.trains(one.name) for one in unmoved):
                self._hold(f"step {record.step} made no update of {unmoved[0].name}")
        for one in elements:
            if fault := self._fault(one, now):
                self._hold(f"{fault} in step {record.step}")
        self.updates += 1

    def conclude(self) -> None:
        """Raise `WrongValues` on every rank if one of them saw a fault. All ranks must call it."""
        for rank, fault in enumerate(self._ranks.gather(self._kept_fault)):
            if fault:
                raise WrongValues(f"{fault} on rank {rank}")

    def _hold(self, fault: str) -> None:
        if self._ranks.world == 1:
            raise WrongValues(fault)
        self._kept_fault = self._kept_fault or fault

    def _fault(self, one: _Elements, now: float) -> str:
        """Describe what is wrong with the update of the elements of one parameter; empty if nothing is."""
        assert one.after is not None
        if one.before is None or one.gradient is None:
            return "" if torch.equal(one.after, one.carried) else f"{one.name} moved without a gradient"
        if not torch.equal(one.before, one.carried):
            return f"{one.name} changed before its update"
        for key in one.carried_state.keys() & one.state.keys():
            if not torch.equal(one.carried_state[key], one.state[key]):
                return f"the optimizer's {key} of {one.name} changed before its update"
        rule = self._expected.rule
        if not rule.by_element(one.name, one.before):
            return ""
        state = rule.adopt(one.state) if one.state else {}
        replayed = rule.update(one.name, one.before, one.gradient, state, now)
        if _odd(one.after, replayed, self._allowed(one, replayed)):
            return f"the update of {one.name} is not that of the optimizer's rule"
        # In 16 bits a moment that nearly cancels is mostly rounding.
        narrow = one.before.element_size() < 4
        kept = rule.adopt(one.state_after) if one.state_after and not narrow else {}
        for key in kept.keys() & state.keys():
            wanted = torch.as_tensor(state[key], dtype=torch.float64)
            if _odd(torch.as_tensor(kept[key]), wanted, _STATE_ERROR * wanted.abs()):
                return f"the optimizer's state of {one.name} is not that of its rule"
        return ""

    def _allowed(self, one: _Elements, replayed: Tensor) -> Tensor:
        """Return the error of each element that rounding explains."""
        assert one.before is not None
        close = self._expected.updates
        relative = _STEP_ERROR + (close.relative if close.kind == "lossy" else 0.0)
        moved = (replayed.double() - one.before.double()).abs()
        return _WEIGHT_ROUNDOFFS * unit_roundoff(one.before.dtype) * replayed.double().abs() + relative * moved

    def _note_noise(self, index: int) -> None:
        """Keep a digest of the generator's state before a step, and hold it against those of earlier ones."""
        if not self._draws_masks:
            return
        device = self._step.program.device
        state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=16).digest()
        earlier = self._began_with.setdefault(digest, index)
        if earlier != index:
            self._hold(f"steps {earlier} and {index} begin with one random state, so their dropout masks are equal")

    def _before_update(self, elements: list[_Elements], optimizer: Any, *_: Any) -> None:
        began = time.perf_counter()
        with self._off_the_clock(), _aside():
            parameters = [one for group in optimizer.param_groups for one in group["params"]]
            updated = {id(one) for one in parameters}
            may_be_unused = self._run.model.own is not None and any(one.grad is not None for one in parameters)
            for one in elements:
                one.unused = may_be_unused and id(one.parameter) in updated and one.parameter.grad is None
                if id(one.parameter) in updated and one.parameter.grad is not None:
                    one.before = self._weight(one)
                    one.gradient = used_gradient(optimizer, _sampled(one, one.parameter.grad))
                    one.state = self._state(one)
        self._spent += time.perf_counter() - began

    def _drawn(self, index: int) -> list[_Elements]:
        """Return the elements of a step, with their present values."""
        rng = random.Random(f"watched elements, seed {self._run.seed}, step {index}")
        found = []
        for name, one in rng.sample(self._parameters, min(_TENSORS, len(self._parameters))):
            places = copied_to(one.device, torch.tensor(rng.choices(range(local(one).numel()), k=_ELEMENTS)))
            elements = _Elements(name, one, places, one, {})
            with torch.no_grad():
                elements.carried, elements.carried_state = self._weight(elements), self._state(elements)
            found.append(elements)
        return found

    def _weight(self, one: _Elements) -> Tensor:
        return _sampled(one, one.parameter)

    def _state(self, one: _Elements) -> Entries:
        """Return sampled elements of the optimizer's state, and its numbers; none if the rule is not by element."""
        if not self._expected.rule.by_element(one.name, one.parameter):
            return {}
        entries = self._step.optimizer.state.get(one.parameter, {})
        return {
            key: _sampled(one, value)
            if key != _COUNT and isinstance(value, Tensor) and value.shape == one.parameter.shape
            else torch.as_tensor(value).detach().clone()
            for key, value in entries.items()
            if isinstance(value, Tensor | int | float)
        }


@contextmanager
def _aside() -> Iterator[None]:
    with _disable_current_modes(), torch.no_grad():
        yield


def _sampled(one: _Elements, tensor: Tensor) -> Tensor:
    """Return a copy of the elements of a tensor of the parameter's shape: a column of a matrix, or else a vector."""
    found = local(tensor).detach().reshape(-1)[one.places]
    return found[:, None] if one.parameter.ndim > 1 else found


def _odd(found: Tensor, wanted: Tensor, allowed: Tensor) -> bool:
    """True if more elements are off than sums that nearly cancel explain; what is not a number is off."""
    near = (found.double() - wanted.double()).abs() <= allowed
    return float((~near).double().mean()) > _ODD
