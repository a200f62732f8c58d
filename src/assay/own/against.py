"""Whether a changed training step computes what a baseline step does: losses, gradients and updates of its first steps.

Both steps are functions that nothing here can divide, so their values are read where torch's optimizers take them. A
hook before each optimizer step reads weights and gradients. The baseline runs at the changed step's weights, from the
same state of torch's generator. It then updates with the changed step's own gradients, so rounding errors of gradients
do not add up in updates. For reassociated values a further pass of the baseline in float64 is the truth, which updates
nothing.

The steps must have weights of their own that begin equal, and the same batches in the same order. The float64 pass
calls the baseline again, so it needs a batch that is fixed, or drawn from torch's generator.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from assay.errors import first_line
from assay.own.adapted import Found, finding
from assay.own.measure import loss_of
from assay.records.evidence import ValueProof
from assay.reference.expected import EXACT, IN_BFLOAT16, REASSOCIATED, Closeness, Kind
from assay.values import nearness
from assay.values.nearness import Judged

STEPS = 3
"""Steps of each that are compared."""
_OTHER_BATCH = 1e-3
"""Relative difference of the baseline's losses in float32 and float64 from which they are of different batches."""
_CLOSE: Mapping[Kind, Closeness] = {"exact": EXACT, "reassociated": REASSOCIATED, "lossy": IN_BFLOAT16}


class _Incomparable(Exception):
    """The steps cannot be compared; the message says why."""


@dataclass
class _Values:
    """Values of one step by parameter name: weights and gradients before the update, and weights after it."""

    loss: float | None = None
    before: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    after: dict[str, Tensor] = field(default_factory=dict)


class _Subject:
    """A step whose values are recorded while it trains."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self.found = call, Found()
        self.parameters: dict[str, Tensor] = {}

    def step(self, index: int, given: Mapping[str, Tensor] | None = None, *, update: bool = True) -> _Values:
        """Do a step. Gradients `given` replace its own before the update; without `update` none is made."""
        values = _Values()

        def before_update(optimizer: Optimizer, *_: Any) -> None:
            names = self._names()
            for place, one in enumerate(one for group in optimizer.param_groups for one in group["params"]):
                if one.grad is None:
                    continue
                name = names.get(id(one), f"parameter {place} of {type(optimizer).__name__}")
                self.parameters[name] = one
                values.before[name], values.gradients[name] = one.detach().clone(), one.grad.detach().clone()
                if not update:
                    one.grad = None
                elif given is not None and name in given:
                    one.grad.copy_(given[name])

        torch.manual_seed(index)
        with finding() as seen:
            handle = register_optimizer_step_pre_hook(before_update)
            try:
                self.found.modules = self.found.modules or seen.modules  # a list that the call is about to fill
                values.loss = loss_of(self._call())
            finally:
                handle.remove()
        if not values.gradients:
            raise _Incomparable(f"call {index + 1} of a step made no update with an optimizer of torch")
        values.after = {name: self.parameters[name].detach().clone() for name in values.gradients}
        return values

    def set(self, weights: Mapping[str, Tensor]) -> None:
        """Give the parameters these values."""
        with torch.no_grad():
            for name, one in weights.items():
                self.parameters[name].copy_(one)

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Context in which modules have weights, buffers and inputs in float64 in place of float32."""
        handles = [one.register_forward_pre_hook(_widened, with_kwargs=True) for one in self.found.modules]
        try:
            for module in self.found.modules:
                module._apply(_wide)  # type: ignore[no-untyped-call]
            yield
        finally:
            for module in self.found.modules:
                module._apply(_narrow)  # type: ignore[no-untyped-call]
            for handle in handles:
                handle.remove()

    def _names(self) -> dict[int, str]:
        """Names of parameters by identity; wrappers of `torch.compile` leave no trace in them."""
        several = len(self.found.modules) > 1
        return {
            id(one): f"{f'{place}.' if several else ''}{name.replace('_orig_mod.', '')}"
            for place, module in enumerate(self.found.modules)
            for name, one in module.named_parameters()
        }


def compare_steps(call: Callable[[], Any], against: Callable[[], Any], kind: Kind) -> ValueProof:
    """Compare the first steps of `call` with those of the baseline `against`; both train.

    `kind` says how near the values must be, as for optimizations. The proof is unchecked, with the reason, if the steps
    cannot be compared. Errors of the steps themselves pass through.
    """
    began = time.perf_counter()
    with torch.random.fork_rng():
        try:
            judged = _judged(_Subject(call), _Subject(against), kind)
        except _Incomparable as reason:
            return ValueProof(unchecked=str(reason))
    failures = nearness.sentences(judged)
    least = _CLOSE[kind].at_least
    shown = max((one.shown for one in judged if one.what == "gradient"), default=0.0)
    if shown < least:
        failures.append(f"no gradient has the rounding error of 16 bits: the largest relative error is {shown:.1e}")
    return ValueProof(
        verdict=not failures,
        failures=tuple(failures),
        steps=STEPS,
        updates=STEPS,
        seconds=time.perf_counter() - began,
        **nearness.figures(judged),
    )


def _judged(changed: _Subject, baseline: _Subject, kind: Kind) -> list[Judged]:
    found, near = list[_Values](), list[_Values]()
    for index in range(STEPS):
        found.append(changed.step(index))
        if index:
            baseline.set(found[-1].before)
        near.append(baseline.step(index, found[-1].gradients))
        if {id(one) for one in changed.parameters.values()} & {id(one) for one in baseline.parameters.values()}:
            raise _Incomparable("both steps train the same weights; make a model for each of them")
        _same_weights(found[-1], near[-1])
    accelerated = any(one.device.type != "cpu" for one in changed.parameters.values())
    close = _CLOSE["reassociated" if kind == "exact" and accelerated else kind]
    exact = _in_float64(baseline, found, near) if close.kind == "reassociated" else near
    return [one for index in range(STEPS) for one in _of_step(index, found[index], near[index], exact[index], close)]


def _same_weights(found: _Values, near: _Values) -> None:
    """Raise `_Incomparable` unless both steps update the same parameters from the same values."""
    if alone := sorted(found.before.keys() ^ near.before.keys()):
        raise _Incomparable(f"only one of the two steps updates {alone[0]}")
    for name, one in found.before.items():
        other = near.before[name]
        if one.shape != other.shape:
            raise _Incomparable(f"{name} has shape {list(one.shape)}, and {list(other.shape)} in the baseline")
        if not torch.equal(one, other.to(one)):
            raise _Incomparable(f"the steps begin with other values of {name}; seed torch equally before each is built")


def _in_float64(baseline: _Subject, found: list[_Values], near: list[_Values]) -> list[_Values]:
    """Return the baseline's values at the same weights in float64; no update is made."""
    if any(one.dtype is not torch.float32 for one in baseline.parameters.values()):
        raise _Incomparable("weights of the baseline are not in float32; say numerics='lossy' for 16 bits")
    exact = []
    for index, one in enumerate(found):
        with baseline.in_float64():
            baseline.set(one.before)
            try:
                exact.append(baseline.step(index, update=False))
            except _Incomparable:
                raise
            except Exception as error:
                raise _Incomparable(f"the baseline fails in float64: {first_line(error)}") from error
        baseline.set(near[index].after)
        here, there = near[index].loss, exact[-1].loss
        if here is not None and there is not None and abs(here - there) > _OTHER_BATCH * abs(there):
            raise _Incomparable(
                "the baseline has another loss when it is called again; give it a batch that is fixed, or drawn from "
                "torch's generator"
            )
    return exact


def _of_step(index: int, found: _Values, near: _Values, exact: _Values, close: Closeness) -> Iterator[Judged]:
    if found.loss is not None and near.loss is not None and exact.loss is not None:
        yield nearness.loss(index, found.loss, near.loss, exact.loss, close)
    truths = {name: one.double() for name, one in exact.gradients.items()}
    elements = sum(one.numel() for one in truths.values())
    typical = (sum(float(one.square().sum()) for one in truths.values()) / elements) ** 0.5
    for name, truth in truths.items():
        own, reference = found.gradients[name], near.gradients[name]
        yield nearness.gradient(index, name, own, reference.to(own), truth, close, typical)
        yield nearness.update(
            index, name, found.before[name], found.after[name], near.after[name], REASSOCIATED, rounded=False
        )


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.dtype is torch.float32 else tensor


def _narrow(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype is torch.float64 else tensor


def _widened(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def wide(one: Any) -> Any:
        return _wide(one) if isinstance(one, Tensor) else one

    return tuple(map(wide, given)), {name: wide(one) for name, one in named.items()}
