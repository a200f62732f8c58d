"""Rows whose times are not compared, and why: they win by work that the clock of their steps does not see.

Processes of a cell that work while other cells are timed slow all others. Work between two steps belongs to no step. In
both cases bytes and losses stay comparable. One process of a row is enough for the first, since all of them run the
same program. The second is the row's share in all its blocks beyond the controls' own, because a busy machine also
makes the time between steps longer.
"""

from collections.abc import Collection, Mapping, Sequence

from assay.analysis.metrics import Metric
from assay.analysis.timed_processes import CONTROLS
from assay.records.study import BASELINE, CellResult, ComparisonRecord
from assay.records.timing import BETWEEN_SHARE, OUTSIDE_SHARE, Between, Outside


def outside_of(record: ComparisonRecord, treatment: str) -> Outside | None:
    """Return the most work of a process of a row outside of its turns; None if it was not read."""
    known = [found for one in record.of(treatment) if (found := _outside(record, one))]
    return max(known, key=lambda one: (one.too_much, one.seconds), default=None)


def between_of(record: ComparisonRecord, treatments: Collection[str]) -> Between | None:
    """Return the time between the steps of some rows, over all their blocks; None if it was not read."""
    return Between.of(
        [block for one in record.cells if one.cell.treatment in treatments for block in one.result.blocks]
    )


def ended_claims(record: ComparisonRecord) -> dict[str, list[str]]:
    """Return the sentences on each row, baselines included, whose times are not compared."""
    usual = between_of(record, CONTROLS)
    found = {}
    for name in dict.fromkeys(one.cell.treatment for one in record.cells):
        said = _outside_said(outside_of(record, name))
        if _ranks(record, name) == _ranks(record, BASELINE):  # ranks wait for each other between two steps
            said += _between_said(between_of(record, [name]), usual)
        if said:
            found[name] = [f"times are not compared: {one}" for one in said]
    return found


def comparable_times(metric: Metric, cells: Sequence[CellResult], ended: Collection[str]) -> list[CellResult]:
    """Return the cells whose figures of a timed metric may be compared; bytes of all rows may."""
    return [one for one in cells if metric.unit == "bytes" or one.cell.treatment not in ended]


def claim_caveats(ended: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence if a control is among the rows whose times are not compared."""
    lost = [name for name in CONTROLS if name in ended]
    if not lost:
        return []
    kept = (
        "the other baseline alone is the control of all times"
        if len(lost) < len(CONTROLS)
        else "no row has a change of time"
    )
    return [f"Times of {' and of '.join(lost)} are not compared, so {kept}: {ended[lost[0]][0]}."]


def _ranks(record: ComparisonRecord, treatment: str) -> set[int]:
    return {one.cell.run.ranks for one in record.of(treatment)}


def _outside(record: ComparisonRecord, one: CellResult) -> Outside | None:
    """Work of one cell outside of its own turns, summed over its rounds; None if it was not read."""
    name = one.cell.name
    mine = [each for each in record.rounds if each.wave == one.wave and name in each.outside_seconds]
    if not mine:
        return None
    others = sum(sum(each.turn_seconds.values()) - each.turn_seconds.get(name, 0.0) for each in mine)
    used = sum(each.outside_seconds[name] for each in mine)
    return Outside(seconds=used, of_seconds=others, ranks=one.cell.run.ranks)


def _outside_said(found: Outside | None) -> list[str]:
    if found is None or not found.too_much:
        return []
    return [
        f"its processes used {found.seconds:.2g} processor seconds while other cells were timed for "
        f"{found.of_seconds:.2g} s, more than {100 * OUTSIDE_SHARE * found.ranks:.0f} %"
    ]


def _between_said(found: Between | None, usual: Between | None) -> list[str]:
    if found is None:
        return []
    share = usual.seconds / usual.of_seconds if usual is not None and usual.of_seconds else 0.0
    if found.too_much(share):
        return [
            f"{found.seconds:.2g} s passed between steps that took {found.of_seconds:.2g} s, and no step's clock has "
            f"them; the baselines' share is {100 * share:.1f} %, and {100 * BETWEEN_SHARE:.0f} points more are allowed"
        ]
    if usual is not None and found.longer_than(usual):
        gap, theirs = (1e3 * (one.gap_seconds or 0.0) for one in (found, usual))
        return [
            f"{gap:.2f} ms pass between two of its steps, and {theirs:.2f} ms between two of a baseline: no step's "
            "clock has the difference"
        ]
    return []
