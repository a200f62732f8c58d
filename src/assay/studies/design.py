"""From what is to be compared to the cells of a comparison: every treatment at every seed, and the baseline twice.

A cell is one run in a process of its own. The baseline is explicit: every optimization off. It stands in the design a
second time, with the same configuration and the same seed: an A/A comparison in every group of cells. Both of its runs
are the control of every treatment. Seeds are shared between the treatments, so that each difference is taken between
two runs that saw the same initial weights and the same batches.

Processes of one row differ by chance, and blocks within a process cannot show by how much. So each row has several:
by its seeds, and where these are few, by several processes at each seed.
"""

from collections.abc import Sequence
from typing import Self

from assay.config.base import Frozen
from assay.config.load import validate
from assay.config.run import Run
from assay.errors import UsageError
from assay.optimizations.registry import normalize

BASELINE = "baseline"
AGAIN = "baseline (again)"
LEAST_PROCESSES = 3
"""Of each row, unless fewer are asked for: two treatments then leave 7 degrees of freedom, and five leave 13."""


class Cell(Frozen):
    """One run of a comparison."""

    treatment: str
    """What stands in the row: `baseline`, `baseline (again)`, or what was written after ``--with``."""
    replicate: int = 0
    """Which of several runs of the same configuration and seed: the baseline has at least two."""
    seed: int
    process: int = 0
    """Which of several processes of this row at this seed; they train the same run."""
    run: Run

    @property
    def name(self) -> str:
        """Unique within a comparison."""
        again = f", time {self.replicate + 1}" if self.replicate and self.treatment == BASELINE else ""
        return f"{self.treatment}, {self.group}{again}"

    @property
    def group(self) -> str:
        """Seed, and which process of it: cells that share both take turns, as far as memory allows."""
        return f"seed {self.seed}" + (f", process {self.process + 1}" if self.process else "")

    def repeated(self, replicate: int) -> Self:
        """The same configuration and seed once more."""
        return self.model_copy(update={"replicate": replicate})


def treatments(base: Run, texts: Sequence[str]) -> dict[str, Run]:
    """The run of each ``NAME[:field=value,…][+NAME…]``, by that text.

    Raises `UsageError` when there is none, when two are the same, or when one cannot be read.
    """
    if base.optimizations:
        listed = "+".join(map(str, base.optimizations))
        raise UsageError(
            f"the baseline of a comparison has every optimization off, and this configuration lists {listed}; "
            f"leave it out there and compare it as --with {listed}"
        )
    if not texts:
        raise UsageError("there is nothing to compare with the baseline; name at least one treatment as --with NAME")
    found: dict[str, Run] = {}
    for text in texts:
        label = "+".join(part.strip() for part in text.split("+"))
        run = normalize(validate({**base.model_dump(exclude_unset=True), "optimizations": label}))
        if not run.optimizations:
            raise UsageError("an empty --with names no treatment; write --with NAME, or NAME+NAME for a stack")
        same = next((other for other, known in found.items() if known == run), None)
        if same is not None:
            raise UsageError(f"the treatment {label!r} is listed twice, since {same!r} is the same run; leave one out")
        found[label] = run
    return found


def enough(seeds: int) -> int:
    """Processes of each row at each seed, so that a row has at least `LEAST_PROCESSES` in all."""
    return -(-LEAST_PROCESSES // max(seeds, 1))


def design(base: Run, texts: Sequence[str], seeds: int, processes: int = 1) -> tuple[Cell, ...]:
    """The cells, seed by seed and process by process: baseline, baseline again, then the treatments as listed.

    The seeds are `base.seed` and those that follow it. Raises `UsageError` as `treatments` does, and below one seed or
    process.
    """
    if seeds < 1:
        raise UsageError(f"seeds={seeds} is not possible; a comparison needs at least one seed")
    if processes < 1:
        raise UsageError(f"processes={processes} is not possible; a row needs at least one process at each seed")
    rows = {BASELINE: base, AGAIN: base, **treatments(base, texts)}
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
