"""A mutant: a run whose technique, or whose own loss, has one fault that leaves a plausible run.

A fault changes the seams of the program that a technique returns, in some steps. The steps are part of the list: a
range, or places that `drawn` takes from a stated seed. A fault leaves a mark for each step in which it acts. So nobody
takes a fault that never acted for a silent one.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from assay.config import ResolvedRun
from assay.step.program import Program

MARKS = "ASSAY_MUTANT_MARKS"
"""Environment variable that names the file of marks."""

EVERY = range(1_000_000)
"""All steps, also those that are discarded after the last one."""

SMALL = ("model.n_layer=2", "training.eval_batches=2")


class Clock:
    """The step that a program is in. Every step asks the schedule first, which tells this clock."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.step = -1
        self._steps = steps
        self._marked: set[int] = set()

    @property
    def due(self) -> bool:
        """Whether the fault acts in the present step; if so, a mark is left."""
        return self.at(self.step)

    def at(self, step: int) -> bool:
        """Whether the fault acts in a step; if so, a mark is left."""
        if step not in self._steps:
            return False
        if step not in self._marked and (place := os.environ.get(MARKS)):
            self._marked.add(step)
            with open(place, "a") as file:
                file.write(f"{step}\n")
        return True

    def told_by(self, program: Program) -> Program:
        """Return a program whose schedule tells this clock each step."""
        honest = program.schedule

        def schedule(step: int) -> float:
            self.step = step
            return honest(step)

        return replace(program, schedule=schedule)


Fault = Callable[[Program, ResolvedRun, Clock], Program]
"""(the correct program, its run, the clock) → the wrong program."""


@dataclass(frozen=True)
class Mutant:
    """One wrong variant of a run."""

    name: str
    says: str
    """The fault in one sentence."""
    technique: str
    """The technique that the mutant passes for, as after `--with`."""
    fault: Fault | None
    """The fault of the technique; None: the model's own loss is at fault."""
    steps: Sequence[int] = EVERY
    """Steps in which the fault acts."""
    of: int = 24
    """Number of steps of the run."""
    settings: tuple[str, ...] = SMALL
    model: str = "demo"
    """Preset, or file and function of an own model."""
    control: str = ""
    """Preset or own model of the control, if it differs."""

    @property
    def acts(self) -> str:
        """The number of faulty steps among all."""
        if self.steps == EVERY:
            return "all"
        after = " and after" if EVERY[-1] in self.steps else ""
        return f"{sum(step < self.of for step in self.steps)} of {self.of}{after}"


def drawn(count: int, of: int, seed: int) -> tuple[int, ...]:
    """Draw `count` steps after the fourth of a run of `of` steps."""
    return tuple(sorted(random.Random(seed).sample(range(4, of), count)))


def last(count: int, of: int = 24) -> range:
    """Return the last steps of a run, and all that are discarded after it."""
    return range(of - count, EVERY.stop)
