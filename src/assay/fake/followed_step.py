"""Follow a training step of a user's own: the first steps, then those of which something is counted.

A function may train once in each call, or take several steps in one, as `Trainer.train` and Lightning's `fit` do.
Such a training shows at the second update of the first call. A step then is what lies between two updates, and the
training ends with the last one that counts.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from assay.errors import UsageError
from assay.fake.first_steps import FIRST
from assay.own.adapted import Found, finding, step_of
from assay.step.program import Step

_PATIENCE = 4
"""Calls within which an optimizer must step."""
_Answer = TypeVar("_Answer")


def follow_step(call: Callable[[], Any], *begin: Callable[[Step], None], end: Callable[[Step], _Answer]) -> _Answer:
    """Take the first steps of a user's own, then one after each of `begin`; return what `end` returns.

    Raises `UsageError` if no optimizer steps and no weight is written to. It is also raised if an optimizer updates
    none of the weights of the modules that were called.
    """
    with finding() as found:
        training = _Training(found, begin, end)
        with training.watched():
            _until_updated(call, found)
        if training.answers:
            return training.answers[0]
        written = not found.optimizers and _writes_weights(call, found.modules)
    if not found.modules or not (found.optimizers or written):
        missing = "no optimizer of torch made a step" if found.modules else "no module with parameters was called"
        raise UsageError(f"{missing} in {_PATIENCE} calls; give a function that does one whole training step")
    if not written:
        _check_weights(found)
        with finding() as again:
            call()
        _check_same(found, again)
    step = step_of(found.modules, () if written else found.optimizers)
    for one in begin:
        one(step)
        call()
    return end(step)


class _Enough(BaseException):
    """Ends a training of which all has been counted; no code that catches errors should catch it."""


class _Training(Generic[_Answer]):
    """Steps of one call, which begin and end where the optimizer that stepped first has stepped."""

    def __init__(self, found: Found, begin: Sequence[Callable[[Step], None]], end: Callable[[Step], _Answer]) -> None:
        self._found, self._begin, self._end = found, list(begin), end
        self.answers: list[_Answer] = []
        self._updates = 0
        self._step: Step | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Context of the first calls. It ends without an error once all has been counted."""
        hook = register_optimizer_step_post_hook(self._updated)
        try:
            yield
        except BaseException:  # also what a trainer raises while it clears away
            if not self.answers:
                raise
        finally:
            hook.remove()

    def _updated(self, optimizer: Optimizer, *_: Any) -> None:
        if optimizer is not self._found.optimizers[0] or self.answers:
            return
        self._updates += 1
        if self._updates == FIRST:
            _check_weights(self._found)
            self._step = step_of(self._found.modules, self._found.optimizers)
        if self._step is None:
            return
        if self._begin:
            self._begin.pop(0)(self._step)
            return
        self.answers.append(self._end(self._step))
        raise _Enough


def _until_updated(call: Callable[[], Any], found: Found) -> None:
    for _ in range(_PATIENCE):
        call()
        if found.optimizers:
            return


def _check_weights(found: Found) -> None:
    """Raise `UsageError` if the optimizers update none of the weights of the modules that were called."""
    weights = {id(one) for module in found.modules for one in module.parameters()}
    updated = {id(one) for optimizer in found.optimizers for group in optimizer.param_groups for one in group["params"]}
    if not weights & updated:
        raise UsageError("the optimizer has none of the model's weights; make it after the model is moved to the GPU")


def _check_same(found: Found, again: Found) -> None:
    """Raise `UsageError` if another call trains another model, whose optimizer has no state yet."""
    known = {id(one) for one in (*found.modules, *found.optimizers)}
    if again.optimizers and not known & {id(one) for one in (*again.modules, *again.optimizers)}:
        raise UsageError(
            "each call makes a model and an optimizer anew; make them once, or let a call train for at least "
            f"{FIRST + 2} steps"
        )


def _writes_weights(call: Callable[[], Any], modules: Sequence[nn.Module]) -> bool:
    """Take a step and return whether it writes to a weight, whose values are not known here."""

    def versions() -> list[tuple[int, int]]:
        return [(id(one), one._version) for module in modules for one in module.parameters()]

    before = versions()
    call()
    return versions() != before
