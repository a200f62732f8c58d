"""Runs of one size as decay branches of the longest one: their common schedule, and where each branches off.

A cosine is made for one length, so each point of a law needs a run of its own. The schedule `wsd` keeps its rate until
the last part of a run (arXiv:2404.06395). So runs of several lengths are equal until the shortest begins to fall. The
longest run of a size, its trunk, keeps a checkpoint there. Each of the others begins with that, trains its decay, and
is the run that never branched (`launch.branch`). Hägele et al. 2024 fit laws to such runs (arXiv:2405.18392).

Rates must be equal for that. So all lengths of a size have the rate of the rule at the geometric mean of their steps,
and the warm-up of the shortest.
"""

import math
from dataclasses import dataclass

from assay.config.run import TrainingConfig
from assay.studies.isoflop.sizes import warmup_steps
from assay.training.learning_rate import decay_start

SCHEDULE = "wsd"


@dataclass(frozen=True)
class SharedSteps:
    """Runs of one size at several lengths, whose first steps are the same."""

    base: TrainingConfig
    lengths: tuple[int, ...]
    """Steps of each run."""

    @property
    def middle(self) -> float:
        """Steps for which the common learning rate is made: the geometric mean."""
        return float(math.prod(self.lengths) ** (1 / len(self.lengths)))

    @property
    def warmup(self) -> int:
        """Steps of the common warm-up."""
        return warmup_steps(self.base, min(self.lengths))

    def branch_step(self, steps: int) -> int:
        """Return the steps that a run of this length shares with the longest; 0 if it is the longest itself."""
        if steps >= max(self.lengths):
            return 0
        changes = {"schedule": SCHEDULE, "warmup_steps": self.warmup, "steps": steps}
        return decay_start(self.base.model_copy(update=changes))

    def settings(self, steps: int, *, whole: bool) -> dict[str, object]:
        """Return the settings of a run of this length; the longest keeps checkpoints, unless all train as a whole."""
        trunk = steps == max(self.lengths) and not whole
        kept = sorted({self.branch_step(one) for one in self.lengths} - {0}) if trunk else []
        return {
            "training.schedule": SCHEDULE,
            "training.warmup_steps": self.warmup,
            "training.keep_steps": kept,
        }
