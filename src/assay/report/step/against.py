"""The proof of a step of a user's own against its baseline as text: its values, its peak, its operators."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Facts, Table
from assay.report.formats import UNKNOWN
from assay.report.wording import value_check
from assay.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from assay.records.own import OwnProof, OwnStep

_SHOWN = 12
"""Most operators to show."""


def proof_report(step: "OwnStep", proof: "OwnProof") -> Iterator[Block]:
    """Yield the verdict with its reasons, and the operators that were added or vanished."""
    yield Facts.of(_facts(step, proof))
    rows = [(one.name, one.phase, one.dtype, str(one.baseline), str(one.count)) for one in proof.operators[:_SHOWN]]
    if rows:
        yield Table.of(("operators that differ", "phase", "dtype", "baseline", "here"), rows, ("baseline", "here"))
    if more := len(proof.operators) - len(rows):
        yield f"{more} more operators differ."


def _facts(step: "OwnStep", proof: "OwnProof") -> Iterator[tuple[str, str]]:
    baseline = proof.baseline
    yield "against", baseline.program.title
    same = ": its operators, its memory and their dtypes are those of the baseline"
    yield "verdict", proof.status.replace("_", " ") + (same if proof.status == "no_effect" else "")
    yield "values", value_check(proof.values, "the baseline's")
    yield "own peak", _changed(baseline.own_peak_bytes, step.own_peak_bytes)
    times = (format_seconds(one.step_seconds.median) for one in (baseline, step))
    yield "step time", f"{' → '.join(times)}, measured one after the other"


def _changed(before: int | None, after: int | None) -> str:
    if not before or after is None:
        return UNKNOWN
    return f"{format_bytes(before)} → {format_bytes(after)}, {format_percent(after / before - 1)}"
