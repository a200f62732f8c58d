"""Count the wrong variants of each technique that the proof catches, and the part of the proof that catches them.

    python benchmarks/mutations.py [--out docs/measured/mutations.md] [TECHNIQUE …]

Every mutant of `tests/optimizations/mutations` that this machine can run is trained for a few steps, and so is the
correct technique. The table counts, by technique, the mutants that were caught by `verify` in a trace, by the values of
the first steps, and by the step at the end. A mutant counts for each part that catches it. Mutants that no part catches
are listed below the table.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch

from assay.optimizations import catalogue
from assay.optimizations.adamw_8bit import step as eight_bit
from optimizations.mutations.harness import SECOND, VALUES, VERIFY
from optimizations.mutations.judgement import Judgement, judged
from optimizations.mutations.named import mutants_of

_PARTS = (VERIFY, VALUES, SECOND)
_SCHEDULES = ("wsd",)
"""Schedules with wrong variants: they are no techniques, and each step of a run holds them against a slow one."""


def rows(technique: str) -> tuple[list[Judgement], int]:
    """What came of a technique's mutants here, and how many only a GPU could have run."""
    everything = list(mutants_of(technique).values())
    here = [one for one in everything if not one.gpu]
    with tempfile.TemporaryDirectory() as place:
        found = judged([(technique, one) for one in here], Path(place))
    return found, len(everything) - len(here)


def line(technique: str, found: Sequence[Judgement], left: int) -> str:
    """One row of the table."""
    parts = Counter(part for one in found for part in one.parts)
    caught = sum(bool(one.parts) for one in found)
    cells = [technique, len(found), caught, *(parts[part] for part in _PARTS), left]
    return f"| {' | '.join(map(str, cells))} |"


def faults(found: Sequence[Judgement]) -> list[str]:
    """Mutants that passed or changed nothing, and honest runs that did not pass."""
    listed = [f"{one.technique} passed the proof: {one.mutant.says}" for one in found if not one.parts]
    listed += [f"{one.technique} changes nothing: {one.mutant.says}" for one in found if not one.changes]
    return listed + [
        f"the correct {one.technique} is refused: {one.control.failures[0]}" for one in found if one.control.failures
    ]


def page(chosen: Sequence[str]) -> str:
    """The table, and what is wrong with it."""
    lines, listed, everything, left = [], list[str](), list[Judgement](), 0
    for technique in chosen:
        found, more = rows(technique)
        lines.append(line(technique, found, more))
        print(lines[-1], *faults(found), sep="\n  ", file=sys.stderr, flush=True)
        listed += faults(found)
        everything += found
        left += more
    head = ["technique", "mutants", "caught", *_PARTS, "not run without a GPU"]
    table = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines, line("all", everything, left)]
    return (
        "\n".join(["# Wrong variants against the proof", "", *table, "", *(f"- {one}" for one in listed)]).rstrip()
        + "\n"
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("techniques", nargs="*", help="default: all")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    # An optimizer of torchao's would compile its update anew in every run, half a minute each.
    eight_bit._as_written = lambda: torch.compiler.set_stance("force_eager")
    text = page(asked.techniques or [*catalogue(), *_SCHEDULES])
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
