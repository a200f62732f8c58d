"""Whether a changed training step computes what a baseline step does: losses, gradients, updates and buffers.

The first steps of both are compared. Both are functions that nothing here can divide, so their values are read where
torch's optimizers take them. A hook before each optimizer step reads weights and gradients. The baseline runs at the
changed step's weights and buffers, from the same state of torch's generator. It then updates with the changed step's
own gradients, so rounding errors of gradients do not add up in updates. For reassociated values a further pass of the
baseline in float64 is the truth, which updates nothing.

The steps must have weights of their own that begin equal, and the same batches in the same order. The float64 pass
calls the baseline again, so it needs a batch that is fixed, or drawn from torch's generator.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map_only

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
_BUFFER_ERROR = 1e-3
"""Relative error of what a step adds to a buffer, where only the order of sums differs."""
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
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Buffers before the step."""
    buffers_after: dict[str, Tensor] = field(default_factory=dict)


class _Subject:
    """A step whose values are recorded while it trains."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self.found = call, Found()
        self.parameters: dict[str, Tensor] = {}

    def step(self, index: int, given: Mapping[str, Tensor] | None = None, *, update: bool = True) -> _Values:
        """Do a step. Gradients `given` replace its own before the update; without `update` none is made."""
        values, updates = _Values(), list[str]()

        def before_update(optimizer: Optimizer, *_: Any) -> None:
            names = self._names()
            updates.append(type(optimizer).__name__)
            for place, one in enumerate(one for group in optimizer.param_groups for one in group["params"]):
                if one.grad is None:
                    continue
                name = names.get(id(one), f"parameter {place} of {type(optimizer).__name__}")
                if name in values.before:
                    raise _Incomparable(f"call {index + 1} of a step updates {name} twice; give one update a call")
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
                values.buffers = self.buffers()
                values.loss = loss_of(self._call())
            finally:
                handle.remove()
        if not values.gradients:
            raise _Incomparable(f"call {index + 1} of a step {_without_gradients(updates)}")
        values.buffers_after = self.buffers()
        values.after = {name: self.parameters[name].detach().clone() for name in values.gradients}
        return values

    def set(self, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor] | None = None) -> None:
        """Give the parameters these values, and the buffers of these names."""
        own = self._buffers()
        with torch.no_grad():
            for name, one in weights.items():
                self.parameters[name].copy_(one)
            for name, one in (buffers or {}).items():
                if name in own and own[name].shape == one.shape:
                    own[name].copy_(one)

    def buffers(self) -> dict[str, Tensor]:
        """Return copies of the modules' buffers, by name."""
        return {name: one.detach().clone() for name, one in self._buffers().items()}

    def _buffers(self) -> dict[str, Tensor]:
        return {name: one for part, prefix in self._parts() for name, one in _named(part.named_buffers(), prefix)}

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Context in which modules have weights, buffers and inputs in float64 in place of float32."""
        handles = [one.register_forward_pre_hook(_widened, with_kwargs=True) for one in self.found.modules]
        every = [one for part in self.found.modules for one in (*part.parameters(), *part.buffers())]
        wide_before = {one.data_ptr() for one in every if one.dtype is torch.float64}
        narrow = partial(_narrow, wide_before)
        try:
            for module in self.found.modules:
                module._apply(_wide)  # type: ignore[no-untyped-call]
            yield
        finally:
            for module in self.found.modules:
                module._apply(narrow)  # type: ignore[no-untyped-call]
            for handle in handles:
                handle.remove()

    def _names(self) -> dict[int, str]:
        """Names of parameters by identity; wrappers of `torch.compile` leave no trace in them."""
        named = ((part.named_parameters(), prefix) for part, prefix in self._parts())
        return {id(one): name for several, prefix in named for name, one in _named(several, prefix)}

    def _parts(self) -> Iterator[tuple[nn.Module, str]]:
        """Yield the modules, with what the names of their tensors begin with."""
        several = len(self.found.modules) > 1
        return ((module, f"{place}." if several else "") for place, module in enumerate(self.found.modules))


def _named(tensors: Iterable[tuple[str, Tensor]], prefix: str) -> Iterator[tuple[str, Tensor]]:
    return ((f"{prefix}{name.replace('_orig_mod.', '')}", one) for name, one in tensors)


def _without_gradients(updates: list[str]) -> str:
    """Return why no gradient was seen before an update, as the end of a sentence."""
    if not updates:
        return "made no update with an optimizer of torch"
    return f"has no gradients before {updates[0]} steps, as where it computes them in a closure"


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
            baseline.set(found[-1].before, found[-1].buffers)
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
        if not torch.isfinite(one).all():
            raise _Incomparable(f"{name} has values that are NaN or infinite")
        if not torch.equal(one, other.to(one)):
            raise _Incomparable(f"the steps begin with other values of {name}; seed torch equally before each is built")


def _in_float64(baseline: _Subject, found: list[_Values], near: list[_Values]) -> list[_Values]:
    """Return the baseline's values at the same weights in float64; no update is made."""
    if any(one.dtype is not torch.float32 for one in baseline.parameters.values()):
        raise _Incomparable("weights of the baseline are not in float32; say numerics='lossy' for 16 bits")
    exact = []
    for index, one in enumerate(found):
        with baseline.in_float64():
            baseline.set(one.before, one.buffers)
            try:
                exact.append(baseline.step(index, update=False))
            except _Incomparable:
                raise
            except Exception as error:
                raise _Incomparable(f"the baseline fails in float64: {first_line(error)}") from error
        baseline.set(near[index].after, near[index].buffers_after)
        here, there = near[index].loss, exact[-1].loss
        if here is not None and there is not None and abs(here - there) > _OTHER_BATCH * abs(there):
            raise _Incomparable(
                "the baseline has another loss when it is called again; give it a batch that is fixed, or drawn from "
                "torch's generator, and keep no state between calls; for 16 bits say numerics='lossy'"
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
    for name in found.buffers_after.keys() & near.buffers_after.keys():
        yield _buffer(index, name, found, near, close)


def _buffer(index: int, name: str, found: _Values, near: _Values, close: Closeness) -> Judged:
    """Judge a buffer after a step, by the error of what the step adds to it."""
    here, there = found.buffers_after[name], near.buffers_after[name]
    if here.shape != there.shape or not here.is_floating_point():
        equal = here.shape == there.shape and torch.equal(here, there.to(here))
        return Judged("buffer", name, index, 0.0 if equal else inf, 0.0 if equal else inf)
    if nearness.same(here, there.to(here)):
        return Judged("buffer", name, index, 0.0, 0.0)
    wide = there.double()
    before = found.buffers.get(name, torch.zeros_like(here)).double()  # before the first call no module is known
    error, moved, size = (float(one.norm()) for one in (here.double() - wide, wide - before, wide))
    relative = {"exact": 0.0, "reassociated": _BUFFER_ERROR}.get(close.kind, close.relative)
    bound = relative * moved + (0.0 if close.kind == "exact" else 2 * nearness.unit_roundoff(here.dtype) * size)
    return Judged("buffer", name, index, error / (moved or 1.0), nearness.over(error, bound))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.dtype is torch.float32 else tensor


def _narrow(wide_before: set[int], tensor: Tensor) -> Tensor:
    """Return a tensor as it was before it was widened; `wide_before` has the addresses of those that were wide."""
    widened = tensor.dtype is torch.float64 and tensor.data_ptr() not in wide_before
    return tensor.float() if widened else tensor


def _widened(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    found: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(Tensor, _wide, (given, named))
    return found
