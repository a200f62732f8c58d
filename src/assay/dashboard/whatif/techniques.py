"""Techniques of the menu: which are on, which can be added, and the sentence of why another cannot.

The sentences are those of `assay train`: a technique is added to the run, and the stack is checked on the machine.
"""

from dataclasses import asdict, dataclass
from typing import Any

from assay.config.run import Run, Spec
from assay.dashboard.whatif.question import WhatIfQuestion, cutting
from assay.errors import UsageError
from assay.hardware import Machine
from assay.optimizations import Optimization, catalogue, check, resolve_run


@dataclass(frozen=True)
class Technique:
    """A line of the menu."""

    name: str
    title: str
    saves: str
    pays: str
    on: bool
    fixed: bool
    """True if the preset turns it on, so that the menu cannot turn it off."""
    why_not: str
    """Why it cannot be added to the stack; empty if it can."""

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain values."""
        return asdict(self)


def techniques(question: WhatIfQuestion, machine: Machine) -> tuple[Technique, ...]:
    """Return all techniques but the one of the menu of micro-batches: the usual ones, and then the others.

    In a stack that is itself not possible every technique can be changed, because any of them may be at fault.
    """
    try:
        run = question.run()
        check(resolve_run(run), machine)
    except UsageError:
        return _lines(question, None, machine)
    return _lines(question, run, machine)


def _lines(question: WhatIfQuestion, run: Run | None, machine: Machine) -> tuple[Technique, ...]:
    given = {one.name for one in WhatIfQuestion(preset=question.preset).run().optimizations}
    added = set(_names(question.stack))
    found = []
    for name, kind in sorted(catalogue().items(), key=lambda one: not one[1].usual):
        if name == cutting():
            continue
        on = name in given or name in added
        why = "" if on or run is None else _why_not(kind, run, machine)
        found.append(Technique(name, kind.title, kind.saves, kind.pays, on, name in given, why))
    return tuple(found)


def _why_not(kind: type[Optimization], run: Run, machine: Machine) -> str:
    """Return the sentence that refuses a technique with its default fields; empty if none does."""
    try:
        specs = (*run.optimizations, kind().spec())
        check(resolve_run(run.model_copy(update={"optimizations": specs})), machine)
    except UsageError as reason:
        return str(reason)
    return ""


def _names(stack: str) -> list[str]:
    """Names of a stack as it is written; none if it cannot be read."""
    try:
        return [one.name for one in Spec.parse_stack(stack)] if stack else []
    except ValueError:
        return []
