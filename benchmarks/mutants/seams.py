"""Faults by the seam of a program that they change; each acts in the mutant's faulty steps only."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from assay.config import ResolvedRun
from assay.step.program import MicroBatch, Program, Share, Step
from mutants.mutant import Clock, Fault

Rows = Sequence[MicroBatch]
"""The micro-batches of a step."""
Update = Callable[[Step], Tensor]
Pass = Callable[[Step, Rows, int], Tensor]
Evaluate = Callable[[Step, Iterable[MicroBatch]], tuple[float, int]]
Source = Callable[[int, Share], Rows]


def updates(change: Callable[[Step, Update], Tensor]) -> Fault:
    """Put `change(step, correct update)` in the place of the update."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest = program.update
        return replace(program, update=lambda step: change(step, honest) if clock.due else honest(step))

    return fault


def after_update(change: Callable[[Step], Any]) -> Fault:
    """Call `change` after the update."""

    def changed(step: Step, honest: Update) -> Tensor:
        norm = honest(step)
        with torch.no_grad():
            change(step)
        return norm

    return updates(changed)


def passes(change: Callable[[Step, Rows, int, Pass], Tensor]) -> Fault:
    """Put `change(step, micro-batches, tokens, correct pass)` in the place of forward and backward."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest = program.gradients

        def gradients(step: Step, rows: Rows, tokens: int) -> Tensor:
            return change(step, rows, tokens, honest) if clock.due else honest(step, rows, tokens)

        return replace(program, gradients=gradients)

    return fault


def gradients(change: Callable[[dict[str, nn.Parameter]], Any]) -> Fault:
    """Call `change` with all weights by name, once their gradients are there."""

    def changed(step: Step, rows: Rows, tokens: int, honest: Pass) -> Tensor:
        loss = honest(step, rows, tokens)
        with torch.no_grad():
            change(dict(step.named_parameters()))
        return loss

    return passes(changed)


def unseen(fault: Fault) -> Fault:
    """Hide the fault's change of gradients from dispatch modes, which would see its operators in a trace."""

    def hidden(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest = program.gradients
        seen: list[Callable[[], Tensor]] = []
        once = replace(program, gradients=lambda step, rows, tokens: seen.pop()())
        wrong = fault(once, run, clock).gradients

        def gradients(step: Step, rows: Rows, tokens: int) -> Tensor:
            loss = honest(step, rows, tokens)
            seen.append(lambda: loss)
            with _disable_current_modes():
                return wrong(step, rows, tokens)

        return replace(program, gradients=gradients)

    return hidden


def scaled(part: str, factor: float) -> Fault:
    """Multiply the gradients of all weights whose names contain `part`."""

    def change(weights: dict[str, nn.Parameter]) -> None:
        for name, one in weights.items():
            if part in name and one.grad is not None:
                one.grad.mul_(factor)

    return gradients(change)


def batches(change: Callable[[Source, int, Share], Rows]) -> Fault:
    """Put `change(correct source, step, share)` in the place of the batch."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest = program.batches
        return replace(program, batches=lambda step, share: (change if clock.at(step) else _as_is)(honest, step, share))

    return fault


def _as_is(honest: Source, step: int, share: Share) -> Rows:
    return honest(step, share)


def rows(change: Callable[[Tensor, Tensor], MicroBatch]) -> Fault:
    """Change the ids and targets of the batch; both are copies."""
    return batches(lambda honest, step, share: [change(x.clone(), y.clone()) for x, y in honest(step, share)])


def evaluations(
    change: Callable[[Step, list[MicroBatch], Evaluate], tuple[float, int]], first: int = 0, until: int = 1_000_000
) -> Fault:
    """Put `change(step, batches, correct evaluation)` in the place of the evaluation's calls `first` to `until` - 1.

    An evaluation calls the seam once for each tenth of its batches. Its calls are counted from 0 after each step.
    """

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest, calls = program.evaluate, dict[int, int]()

        def evaluate(step: Step, windows: Iterable[MicroBatch]) -> tuple[float, int]:
            number = calls[clock.step] = calls.get(clock.step, -1) + 1
            chosen = first <= number < until and clock.due
            return change(step, list(windows), honest) if chosen else honest(step, windows)

        return replace(program, evaluate=evaluate)

    return fault


def together(*faults: Fault) -> Fault:
    """Plant several faults that make one."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        for one in faults:
            program = one(program, run, clock)
        return program

    return fault


@contextmanager
def other_weights(step: Step, change: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Context in which each weight has the value that `change(name, weight)` returns."""
    before = {name: one.detach().clone() for name, one in step.named_parameters()}
    with torch.no_grad():
        for name, one in step.named_parameters():
            one.copy_(change(name, one.detach()))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, one in step.named_parameters():
                one.copy_(before[name])


@contextmanager
def rates(step: Step, factor: float) -> Iterator[None]:
    """Context in which each group's learning rate is multiplied, and after which the groups say what they said."""
    before = [group["lr"] for group in step.optimizer.param_groups]
    for group in step.optimizer.param_groups:
        group["lr"] *= factor
    try:
        yield
    finally:
        for group, rate in zip(step.optimizer.param_groups, before, strict=True):
            group["lr"] = rate


def clear(step: Step) -> None:
    """Free all gradients, as an update does."""
    for _, one in step.named_parameters():
        one.grad = None
