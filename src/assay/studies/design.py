"""The design of a comparison: a cell for every treatment at every seed, and two for the baseline.

A cell is one run in a process of its own. The baseline has every optimization off. It is in the design twice, with the
same configuration and the same seed: an A/A comparison in every group of cells. Both of its runs are the control of
every treatment. Treatments share their seeds, so each difference is between two runs with the same initial weights and
the same batches.

Processes of one row differ by chance, and blocks within a process cannot show by how much. So each row has several
processes: one per seed, and with few seeds several at each.
"""

from collections.abc import Sequence
from typing import Self

from assay.config.base import Frozen
from assay.config.loading import validate
from assay.config.run import ResolvedRun, Run
from assay.errors import UsageError
from assay.optimizations.stack import resolved

BASELINE = "baseline"
AGAIN = "baseline (again)"
LEAST_PROCESSES = 3
"""Least processes of each row by default. Two treatments then leave 7 degrees of freedom, and five leave 13."""


class Cell(Frozen):
    """One run of a comparison."""

    treatment: str
    """Label of the row: `baseline`, `baseline (again)`, or the argument of ``--with``."""
    replicate: int = 0
    """Index among runs with the same configuration and seed; the baseline has at least two."""
    seed: int
    process: int = 0
    """Index among the processes of this row at this seed, which all train the same run."""
    run: ResolvedRun

    @property
    def name(self) -> str:
        """Name of the cell, unique within a comparison."""
        again = f", time {self.replicate + 1}" if self.replicate and self.treatment == BASELINE else ""
        return f"{self.treatment}, {self.group}{again}"

    @property
    def group(self) -> str:
        """Seed and process; cells that share both take turns, as far as memory permits."""
        return f"seed {self.seed}" + (f", process {self.process + 1}" if self.process else "")

    def repeated(self, replicate: int) -> Self:
        """A copy of the cell, with the same configuration and seed, as another replicate."""
        return self.model_copy(update={"replicate": replicate})


def treatments(base: Run, texts: Sequence[str]) -> dict[str, ResolvedRun]:
    """The run of each ``NAME[:field=value,…][+NAME…]``, by that text.

    Raises `UsageError` if there is none, if two are the same run, or if one cannot be read. Raises it as well if the
    baseline lists optimizations.
    """
    if base.optimizations:
        listed = "+".join(map(str, base.optimizations))
        raise UsageError(
            f"the baseline of a comparison has every optimization off, and this configuration lists {listed}; "
            f"remove it there and compare it as --with {listed}"
        )
    if not texts:
        raise UsageError("there is nothing to compare with the baseline; name at least one treatment as --with NAME")
    found: dict[str, ResolvedRun] = {}
    for text in texts:
        label = "+".join(part.strip() for part in text.split("+"))
        run = resolved(validate({**base.model_dump(exclude_unset=True), "optimizations": label}))
        if not run.optimizations:
            raise UsageError("an empty --with names no treatment; write --with NAME, or NAME+NAME for a stack")
        same = next((other for other, known in found.items() if known == run), None)
        if same is not None:
            raise UsageError(
                f"the treatment {label!r} is listed twice, because {same!r} is the same run; leave one out"
            )
        found[label] = run
    return found


def enough(seeds: int) -> int:
    """Processes of each row at each seed that give a row at least `LEAST_PROCESSES` in all."""
    return -(-LEAST_PROCESSES // max(seeds, 1))


def design(base: Run, texts: Sequence[str], seeds: int, processes: int = 1) -> tuple[Cell, ...]:
    """The cells, seed by seed and process by process: baseline, baseline again, then the treatments as listed.

    The seeds are `base.seed` and the next `seeds` − 1 numbers. Raises `UsageError` as `treatments`, and for less than
    one seed or process.
    """
    if seeds < 1:
        raise UsageError(f"seeds={seeds} is not possible; a comparison needs at least one seed")
    if processes < 1:
        raise UsageError(f"processes={processes} is not possible; a row needs at least one process at each seed")
    baseline = resolved(base)
    rows = {BASELINE: baseline, AGAIN: baseline, **treatments(base, texts)}
    return tuple(
        Cell(
            treatment=label,
            replicate=int(label == AGAIN),
            seed=seed,
            process=process,
            run=run.model_copy(update={"seed": seed}),
        )
        for seed in range(base.seed, base.seed + seeds)
        for process in range(processes)
        for label, run in rows.items()
    )
