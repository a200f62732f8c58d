"""A metric: a figure of a run that a comparison compares with the baseline's.

All places that name a figure read this one object: the analysis, JSON and data frames, the printed table, the page.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.records.prediction import Predicted
from assay.records.run import RunResult
from assay.records.timing import Block

Unit = Literal["bytes", "seconds", "per_second", "nats", "count", "ratio"]
Better = Literal["lower", "higher"]
Kind = Literal["exact", "timed", "loss"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. A fault in its definition raises `UsageError`."""

    name: str
    """Key in JSON and data frames, with its base unit: ``step_seconds``."""
    title: str
    """Heading of its column."""
    unit: Unit
    better: Better
    kind: Kind
    """`exact` repeats exactly, `timed` is measured in each timed block, and `loss` is compared seed by seed."""
    meaning: str
    """Sentence on the page about how the figure is made."""
    shown: bool = True
    """True if it is a column of the table and of the page; JSON and data frames have every metric."""
    predicted: bool = False
    """True if the estimator predicts it, under the same name in `Predicted`."""
    of: Callable[[RunResult], float | None] | None = None
    """Figure of a run. A timed metric may have it too: it then replaces blocks that were not recorded.

    Of a timed metric in bytes, a row has the largest `of` of its runs.
    """
    of_block: Callable[[Block], float | None] | None = None
    """Figure of one timed block, for timed metrics. It is positive, because its logarithms are compared."""
    per_step: Callable[[ResolvedRun], float] | None = None
    """Amount of one optimizer step, for rates: a row's figure is this amount divided by its step time."""

    def __post_init__(self) -> None:
        choices = {"unit": Unit, "better": Better, "kind": Kind}
        for field, allowed in choices.items():
            if getattr(self, field) not in get_args(allowed):
                raise self._fault(f"has {field}={getattr(self, field)!r}; choose {' or '.join(get_args(allowed))}")
        needed = "of_block" if self.kind == "timed" else "of"
        if getattr(self, needed) is None:
            raise self._fault(f"is of the kind {self.kind!r} and has no function {needed!r}; define it")
        if self.predicted and self.name not in Predicted.model_fields:
            raise self._fault("has predicted=True, but the estimator does not predict it; leave that out")

    def of_run(self, result: RunResult) -> float | None:
        """Return the figure of a run; None if it has none."""
        return None if self.of is None else self.of(result)

    def _fault(self, sentence: str) -> UsageError:
        return UsageError(f"the metric {self.name!r} {sentence}")
