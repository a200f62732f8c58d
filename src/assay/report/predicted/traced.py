"""The peak of a traced step as text, alone or beside the ledger's prediction of the same step."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from assay.report.blocks import UNKNOWN, Block, Facts, Table
from assay.units import format_bytes, format_count, format_percent

if TYPE_CHECKING:
    from assay.estimator import Estimate
    from assay.records.own import TracedPeak

_SAVED = "saved: "
_ALL_SAVED = "saved for backward"


def traced_report(traced: "TracedPeak") -> Iterator[Block]:
    """Yield the parts of a traced peak."""
    yield Facts.of([("parameters", format_count(traced.parameters))])
    rows = [(part, format_bytes(count), f"{count / traced.peak_bytes:.1%}", "") for part, count in traced.parts.items()]
    rows.append(("peak of tensors", format_bytes(traced.peak_bytes), "100.0%", traced.instant))
    yield Table.of(("parts of the peak, traced", "bytes", "share", ""), rows, ("bytes", "share"))


def beside_ledger(traced: "TracedPeak", estimate: "Estimate") -> Iterator[Block]:
    """Yield a traced peak beside the ledger's; saved tensors are one part, because the two sort them otherwise."""
    ledger, trace = together(estimate.peak_parts), together(traced.parts)
    columns = ("parts of the peak", "ledger", "traced", "difference")
    shown = [*ledger, *(part for part in trace if part not in ledger)]
    rows = [(part, *_pair(ledger.get(part), trace.get(part))) for part in shown]
    peak = estimate.timeline.peak
    rows.append(("peak of tensors", *_pair(peak.nbytes, traced.peak_bytes)))
    rows.append(("instant", str(peak), traced.instant, ""))
    yield Table.of(columns, rows, columns[1:])


def together(parts: Mapping[str, int]) -> dict[str, int]:
    """Bytes by part, with all that is saved for backward as one."""
    found: Counter[str] = Counter()
    for part, count in parts.items():
        found[_ALL_SAVED if part.startswith(_SAVED) else part] += count
    return dict(found)


def _pair(ledger: int | None, traced: int | None) -> tuple[str, str, str]:
    if ledger is None or traced is None:
        known, found = (UNKNOWN if one is None else format_bytes(one) for one in (ledger, traced))
        return known, found, UNKNOWN
    return format_bytes(ledger), format_bytes(traced), format_percent(traced / ledger - 1)
