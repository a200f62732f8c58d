"""A study that ran on several machines: the machine is a blocking factor.

Times of two machines are never compared with each other. Each machine has a control of its own, against which its rows
change. The analysis asks whether a row changes as much on one machine as on another. The change over all machines is
the mean of their logarithms. Half widths of independent changes are added as squares, as
`analysis.choose.criteria.log_change` does.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import hypot
from typing import NamedTuple

from assay.analysis.choose.criteria import LogChange, log_change
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric, metrics
from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.records.run import Environment

_NAMING = ("accelerator", "processor", "cores", "threads", "instruction_set", "torch", "assay", "python")
"""Fields of an environment that name a machine, the most telling first."""


class Across(NamedTuple):
    """Change of one metric of one row on each machine."""

    row: str
    metric: Metric
    changes: tuple[LogChange | None, ...]
    """Change on each machine against its own control; None where it was not measured."""

    @property
    def overall(self) -> LogChange | None:
        """Mean change over the machines; None unless all have it."""
        known = [one for one in self.changes if one is not None]
        if len(known) < len(self.changes):
            return None
        halves = [one.half for one in known if one.half is not None]
        half = hypot(*halves) / len(known) if len(halves) == len(known) else None
        return LogChange(sum(one.log for one in known) / len(known), half)

    @property
    def differ(self) -> bool | None:
        """True if two machines can be told apart, False if none can, None if that cannot be judged."""
        known = [one for one in self.changes if one is not None]
        between = [one.since(other) for one, other in combinations(known, 2)]
        if any(one.sign for one in between):
            return True
        return None if not between or any(one.half is None for one in between) else False


class Machines(NamedTuple):
    """One study on several machines."""

    studies: tuple[str, ...]
    """Ids of the studies."""
    names: tuple[str, ...]
    """Names of the machines by what distinguishes them, such as a processor; ids of the studies if nothing does."""
    rows: tuple[Across, ...]
    """Every row with every metric that at least one machine has, in the order of the first study."""
    missing: Mapping[str, tuple[str, ...]]
    """Rows that are not in all studies, with the ids of those that lack them."""


def machines(comparisons: Sequence[Comparison]) -> Machines:
    """Compare the changes of one study on several machines.

    Raises `UsageError` if there are fewer than two studies, if one is named twice, or if a row of the same name is
    another run.
    """
    ids = tuple(one.record.id for one in comparisons)
    if len(ids) < 2 or len(set(ids)) < len(ids):
        raise UsageError("name at least two different studies; each is the same study on another machine")
    labels = list(dict.fromkeys(row.treatment for one in comparisons for row in one.rows))
    lacking = {label: tuple(one.record.id for one in comparisons if not one.record.of(label)) for label in labels}
    common = [label for label in labels if not lacking[label]]
    if not common:
        raise UsageError(f"the studies {', '.join(ids)} have no row in common")
    for label in common:
        _check_same(label, comparisons)
    found = [Across(label, metric, _changes(label, metric, comparisons)) for label in common for metric in _shown()]
    return Machines(
        studies=ids,
        names=_names(comparisons),
        rows=tuple(one for one in found if any(change is not None for change in one.changes)),
        missing={label: studies for label, studies in lacking.items() if studies},
    )


def _shown() -> list[Metric]:
    """Return the metrics of the table, without rates, which say the same as times."""
    return [metric for metric in metrics().values() if metric.shown and metric.per_step is None]


def _changes(label: str, metric: Metric, comparisons: Sequence[Comparison]) -> tuple[LogChange | None, ...]:
    rows = (next(row for row in one.rows if row.treatment == label) for one in comparisons)
    return tuple(log_change(row, metric) for row in rows)


def _check_same(label: str, comparisons: Sequence[Comparison]) -> None:
    first, *others = comparisons
    for other in others:
        if _run(first, label) != _run(other, label):
            raise UsageError(
                f"the row {label!r} is another run in the study {other.record.id} than in {first.record.id}, so its "
                "changes cannot be compared"
            )


def _run(comparison: Comparison, label: str) -> ResolvedRun:
    """Return the run of a row without what a machine decides: its device, its threads and the seed."""
    run = comparison.record.of(label)[0].cell.run
    return run.model_copy(update={"seed": 0, "threads": None, "cores": None, "device": "auto"})


def _names(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    places = [one.environment for one in comparisons]
    known = [place for place in places if place is not None]
    fields = [name for name in _NAMING if len({getattr(place, name) for place in known}) > 1]
    names = [_name(place, fields) for place in places]
    unlike = len(set(names)) == len(names) and all(names)
    return tuple(names if unlike else (one.record.id for one in comparisons))


def _name(place: Environment | None, fields: Sequence[str]) -> str:
    if place is None:
        return ""
    told = {name: getattr(place, name) for name in fields}
    return ", ".join(
        str(value) if name in ("accelerator", "processor", "instruction_set") else f"{name} {value}"
        for name, value in told.items()
        if value is not None
    )
