"""Rows whose times are not compared, and why: their processes worked while other cells were timed.

Such a cell slows all others and not itself, so its row would win. Its bytes and losses stay comparable. One process of
a row is enough, since all of them run the same program.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from assay.analysis.metrics import Metric
from assay.records.study import CellResult, ComparisonRecord
from assay.records.timing import OUTSIDE_SHARE, Outside, Round

Place = tuple[int, str]
"""Wave and name of a cell."""


def outside(rounds: Iterable[Round]) -> dict[Place, Outside]:
    """Return the work of each cell outside of its own turns, summed over its rounds."""
    found: dict[Place, Outside] = {}
    for one in rounds:
        whole = sum(one.turn_seconds.values())
        for name, seconds in one.outside_seconds.items():
            before = found.get((one.wave, name), Outside(seconds=0.0, of_seconds=0.0))
            others = whole - one.turn_seconds.get(name, 0.0)
            found[one.wave, name] = Outside(seconds=before.seconds + seconds, of_seconds=before.of_seconds + others)
    return found


def outside_of(record: ComparisonRecord, treatment: str) -> Outside | None:
    """Return the most work of a process of a row outside of its turns; None if it was not read."""
    known = outside(record.rounds)
    of_row = [found for one in record.of(treatment) if (found := known.get((one.wave, one.cell.name)))]
    return max(of_row, key=lambda one: (one.too_much, one.seconds), default=None)


def ended_claims(record: ComparisonRecord) -> dict[str, list[str]]:
    """Return the sentences on each row, baselines included, whose times are not compared."""
    rows = dict.fromkeys(one.cell.treatment for one in record.cells)
    return {name: said for name in rows if (said := _outside_flags(outside_of(record, name)))}


def comparable_times(metric: Metric, cells: Sequence[CellResult], ended: Collection[str]) -> list[CellResult]:
    """Return the cells whose figures of a timed metric may be compared; bytes of all rows may."""
    return [one for one in cells if metric.unit == "bytes" or one.cell.treatment not in ended]


def claim_caveats(ended: Mapping[str, Sequence[str]], controls: Collection[str]) -> list[str]:
    """Return a sentence if a control is among the rows whose times are not compared."""
    lost = [name for name in controls if name in ended]
    if not lost:
        return []
    kept = (
        "the other baseline alone is the control of all times"
        if len(lost) < len(controls)
        else "no row has a change of time"
    )
    return [f"Times of {' and of '.join(lost)} are not compared, so {kept}: {ended[lost[0]][0]}."]


def _outside_flags(found: Outside | None) -> list[str]:
    if found is None or not found.too_much:
        return []
    return [
        f"times are not compared: its processes used {found.seconds:.2g} processor seconds while other cells were "
        f"timed for {found.of_seconds:.2g} s, more than {100 * OUTSIDE_SHARE:.0f} %"
    ]
