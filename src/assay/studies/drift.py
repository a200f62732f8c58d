"""Drift of a loss by rounding alone, measured with one more run of the baseline, whose initial weights are nudged.

Training is chaotic. Two runs that add the same numbers in another order diverge slowly at first, and without limit
later. So a fixed bound either fails honest techniques late or passes wrong ones early. Here every initial weight is
moved by one unit in the last place (`Run.nudge`), and dropout draws other masks. This run differs from the baseline by
rounding and noise, and nothing else.

One such run per seed follows all timed cells, because some seeds are a hundred times more chaotic than others. It takes
no turns, is not measured in memory, and evaluates as little as possible. Only its training losses are read.
"""

from collections.abc import Sequence

from assay.config.run import ResolvedRun
from assay.optimizations import Numerics, numerics_of
from assay.records.study import BASELINE, Cell

NUDGED = "baseline (nudged)"
FIRST_STEPS = 20
"""Steps in which a fixed bound on rounding holds, unless dropout draws masks."""


def nudged_copies(cells: Sequence[Cell], accelerated: bool) -> list[Cell]:
    """Nudged copies of the baseline, one per seed of a design; empty if no bound depends on them.

    `accelerated` is true if cells run on an accelerator, where two equal runs may diverge.
    """
    promises = {numerics_of(cell.run) for cell in cells}
    base = cells[0].run
    matters = base.training.steps > FIRST_STEPS or base.model.dropout > 0
    if not matters or not (accelerated or Numerics.REASSOCIATED in promises):
        return []
    baselines = {cell.seed: cell.run for cell in cells if cell.treatment == BASELINE}
    return [Cell(treatment=NUDGED, seed=seed, run=_nudged(run)) for seed, run in baselines.items()]


def _nudged(run: ResolvedRun) -> ResolvedRun:
    quiet = {"eval_interval": 0, "eval_batches": 1, "target_loss": None, "checkpoint_interval": 0}
    training = run.training.model_copy(update={**quiet, "measure_memory": False})
    return run.model_copy(update={"nudge": run.nudge + 1, "training": training})
