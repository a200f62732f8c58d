"""How far rounding alone takes a loss: one more run of the baseline, whose initial weights are nudged.

Training is chaotic. Two runs that add the same numbers in another order part slowly at first, and without limit later,
so a fixed bound either fails honest techniques late or passes wrong ones early. Here every initial weight is moved by
one unit in the last place (`Run.nudge`), and dropout draws other masks. What parts this run from the baseline is
rounding and noise, and nothing else.

The run is made once, at the comparison's first seed, after all timed cells. It takes no turns, is not measured in
memory, and evaluates as little as possible: only its training losses are read.
"""

from collections.abc import Sequence

from assay.config.run import Run
from assay.optimizations import Numerics, numerics_of
from assay.studies.design import Cell

NUDGED = "baseline (nudged)"
FIRST_STEPS = 20
"""Steps in which a fixed bound on rounding holds, where neither masks nor routes are drawn."""


def nudged(cells: Sequence[Cell], accelerated: bool) -> Cell | None:
    """The nudged copy of a design's first cell, a baseline; None where no bound depends on it.

    `accelerated` says whether cells run on an accelerator, where two equal runs may part.
    """
    promises = {numerics_of(cell.run) for cell in cells}
    base = cells[0].run
    late = base.training.steps > FIRST_STEPS or draws(base)
    if not late or not (accelerated or Numerics.REASSOCIATED in promises):
        return None
    run = base.model_copy(update={"nudge": base.nudge + 1, "training": base.training.model_copy(update=_QUIET)})
    return Cell(treatment=NUDGED, seed=cells[0].seed, run=run)


_QUIET = {
    "eval_interval": 0,
    "eval_batches": 1,
    "target_loss": None,
    "checkpoint_interval": 0,
    "measure_memory": False,
}


def draws(run: Run) -> bool:
    """Whether masks or routes may part two runs by more than rounding from the first step on."""
    return run.model.dropout > 0 or run.model.n_expert is not None
