"""The limit that binds each row."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.limits import COMMUNICATING, NEAR_MEMORY, NEAR_RATES, WAITING, RowLimit, limits
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


_SHARES = ("memory", "data", "communication", "compute")


def _content(study: "StudyView") -> Iterator[Block]:
    found = study.of(limits)
    known = [share for share in _SHARES if any(getattr(one, share) is not None for one in found)]
    if not known:
        return
    titles = {
        "memory": "of free memory",
        "data": "waits for data",
        "communication": "communicates",
        "compute": "predicted / measured",
    }
    columns = ("row", "limit", *(titles[share] for share in known))
    rows = ((one.row.treatment, one.limit.value, *(_share(getattr(one, share)) for share in known)) for one in found)
    yield Table.of(columns, rows, right=columns[2:])
    bounds = [f"{100 * bound:.0f} %" for bound in (NEAR_MEMORY, WAITING, COMMUNICATING, NEAR_RATES)]
    yield (
        f"Memory binds from {bounds[0]} of the memory that was free before the study, data from {bounds[1]} of a step "
        f"spent waiting for a batch, communication from {bounds[2]}, and compute if the step time predicted from the "
        f"machine's measured rates is at least {bounds[3]} of the measured one. The first of these is named. Otherwise "
        "the limit is not known: overheads that no record separates take the time."
    )


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f} %"


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [_plain(one) for one in study.of(limits)]


def _plain(one: RowLimit) -> dict[str, Any]:
    shares = {f"{share}_share": getattr(one, share) for share in _SHARES}
    return {"row": one.row.treatment, "limit": one.limit.value, **shares}


SECTION = Section("limits", "The limit that binds", _content, _values, printed=False)
