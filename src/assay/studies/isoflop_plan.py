"""A study of scaling before it runs, with what it was designed from: sizes of a model on this machine, and limits.

The sizes have the time of their steps, the text, and the slots.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from assay.config.home import Home
from assay.config.run import ResolvedRun, Run
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.launch.prepare import ReadyRun, ready
from assay.launch.rates import measured_machine
from assay.studies.execution.ready import side_by_side, with_step_times
from assay.studies.isoflop_budget import DesignLimits, PlannedRun, Wanted, runs_of, study_seconds
from assay.studies.isoflop_sizes import check_base, counts, run_at_width, shape
from assay.studies.kinds.isoflop import Isoflop

_ENOUGH_SIZES, _MOST_SIZES = 4, 12
_LEAST_LAYERS = 2


@dataclass(frozen=True)
class Here:
    """Sizes with what is known of them on this machine."""

    sizes: Mapping[int, ResolvedRun]
    """The base at each width, with its vocabulary."""
    step_seconds: Mapping[int, float]
    """Predicted seconds of a step of each width, on one thread."""
    slots: int
    """Cells that run beside each other."""
    train_tokens: int
    """Tokens of the text that is trained on."""


def widths_of(base: Run) -> tuple[int, ...]:
    """Return widths up to the base's, those with a whole number of blocks at its aspect ratio if there are enough.

    The smallest has two blocks. One alone cannot look up what followed an earlier token (Olsson et al. 2022,
    arXiv:2209.11895), so its losses are off the law of the deeper ones.
    """
    head, aspect = base.model.head_dim, base.model.n_embd / base.model.n_layer
    every = [
        heads * head for heads in range(1, base.model.n_head + 1) if heads * head >= (_LEAST_LAYERS - 0.5) * aspect
    ]
    whole = [width for width in every if (width / aspect).is_integer() and width >= _LEAST_LAYERS * aspect]
    found = whole if len(whole) >= _ENOUGH_SIZES else every or [base.model.n_embd]
    if len(found) <= _MOST_SIZES:
        return tuple(found)
    steps = (found[-1] / found[0]) ** (1 / (_MOST_SIZES - 1))
    wanted = (found[0] * steps**number for number in range(_MOST_SIZES))
    return tuple(dict.fromkeys(min(found, key=lambda one: abs(math.log(one / width))) for width in wanted))


def measure_sizes(base: Run, widths: tuple[int, ...], home: Home, prepare: Progress) -> Here:
    """Prepare the text, and time steps of every width with one thread.

    Raises `UsageError` if the base has no other sizes, if a width is impossible, or if a time cannot be predicted.
    """
    from assay.data import prepare as prepared

    check_base(base)
    for width in widths:
        shape(base, width)
    alone = base.model_copy(update={"threads": 1})
    known = ready(alone, home, prepare)
    text = prepared(base.data, home, prepare)
    vocabulary = known.run.model.vocab_size
    base = alone.with_vocabulary(vocabulary)
    found = {str(width): ready(run_at_width(base, width).asked(), home, prepare) for width in widths}
    measured_machine(home, 1, tell=lambda sentence: prepare(sentence, None))
    timed = with_step_times(found, home, prepare)
    return Here(
        sizes={width: timed[str(width)].run for width in widths},
        step_seconds={width: _step_seconds(timed[str(width)]) for width in widths},
        slots=side_by_side(timed.values()),
        train_tokens=len(text.train),
    )


def _step_seconds(one: ReadyRun) -> float:
    seconds = None if one.predicted is None else one.predicted.step_seconds
    if seconds is None:
        size = counts(one.run.model)["total"]
        raise UsageError(
            f"the time of a step with {size} parameters cannot be predicted here, so no budget can be kept"
        )
    return seconds


@dataclass(frozen=True)
class ScalingPlan:
    """A study of scaling before it runs."""

    study: Isoflop
    here: Here
    wanted: Wanted
    limits: DesignLimits
    budget_seconds: float
    seconds: float
    """Predicted time of the whole."""

    @cached_property
    def runs(self) -> list[PlannedRun]:
        """Every run in its order, the control's second ones included."""
        return runs_of(self.study, self.wanted, self.limits)

    @property
    def separate_seconds(self) -> float:
        """Predicted time of the whole, if every run trained all of its steps itself."""
        return study_seconds(self.study.model_copy(update={"branches": False}), self.wanted, self.limits)
