"""Plants a mutant as an extension: a technique of one's own in a folder that `ASSAY_EXTENSIONS` names.

The extension's class derives from the real technique and changes only what `apply` returns. Nothing is changed at
import, so the process that computes the reference values stays correct.
"""

from pathlib import Path

from assay.config import ResolvedRun
from assay.optimizations import catalogue
from assay.step.program import Program
from mutants.mutant import Clock, Mutant

NAME = "planted"
"""Name of every planted technique, after `--with`."""

_SOURCE = """
import sys

from {module} import {kind}

sys.path.append({folder!r})


class Planted({kind}):
    def apply(self, program, run):
        from mutants.named import named
        from mutants.planting import faulty

        return faulty(named({mutant!r}), super().apply(program, run), run)
"""


def planted(mutant: Mutant, folder: Path) -> str:
    """Write the extension of a mutant into a folder, and return the treatment that names it."""
    technique, colon, fields = mutant.technique.partition(":")
    if mutant.fault is None:
        return mutant.technique
    kind = catalogue()[technique]
    names = {"module": kind.__module__, "kind": kind.__name__, "mutant": mutant.name}
    place = folder / "optimizations"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{NAME}.py").write_text(_SOURCE.format(**names, folder=str(Path(__file__).parents[1])))
    return NAME + colon + fields


def faulty(mutant: Mutant, program: Program, run: ResolvedRun) -> Program:
    """Return the program with the mutant's fault."""
    if mutant.fault is None:
        raise ValueError(f"the technique of {mutant.name!r} has no fault: the model's loss has")
    clock = Clock(mutant.steps)
    return clock.told_by(mutant.fault(program, run, clock))
