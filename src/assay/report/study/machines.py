"""One study on several machines as text: a column of changes for each machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.report.comparison.wording import change, plain
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table

if TYPE_CHECKING:
    from assay.analysis.factors.machines import Across, Machines


def machines_report(found: "Machines") -> Iterator[Block]:
    """Yield the machines, a table of changes, and what its columns say."""
    letters = [chr(ord("A") + place) for place in range(len(found.names))]
    named = zip(letters, found.names, found.studies, strict=True)
    yield Facts.of((letter, f"study {study}" + ("" if name == study else f", {name}")) for letter, name, study in named)
    columns = ("row", "metric", *letters, "all", "machines")
    yield Table.of(columns, map(_row, found.rows), right=columns[2:-1])
    yield (
        "Changes are against the control of the same machine, with intervals in percent. Machines differ if the "
        "interval of the difference of two changes is free of zero. The change over all is the mean of logarithms."
    )
    for label, studies in found.missing.items():
        yield f"Not compared, because it is not in {', '.join(studies)}: {label}."


def values(found: "Machines") -> dict[str, Any]:
    """Return plain values for ``--json``; changes and intervals are fractions."""
    return {
        "studies": list(found.studies),
        "machines": list(found.names),
        "rows": [
            {
                "row": one.row,
                "metric": one.metric.name,
                "changes": list(map(plain, one.changes)),
                "all": plain(one.overall),
                "differ": one.differ,
            }
            for one in found.rows
        ],
        "missing": {label: list(studies) for label, studies in found.missing.items()},
    }


def _row(one: "Across") -> tuple[str, ...]:
    told = {True: "differ", False: "not distinguishable", None: UNKNOWN}[one.differ]
    if one.differ is False and all(known is not None and not known.half for known in one.changes):
        told = "equal"
    return one.row, one.metric.title, *map(change, one.changes), change(one.overall), told
