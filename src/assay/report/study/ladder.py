"""The rungs of a ladder: speed against the rung before and the control, tokens seen, and the document's own figures."""

from collections.abc import Iterator, Sequence
from typing import Any

from assay.analysis.comparison import Comparison
from assay.analysis.factors.ladder import Multiple, Printed, Rung, ladder
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN
from assay.report.study.section import Section
from assay.units import format_count

_ROW, _PREVIOUS, _BASELINE, _TOKENS, _DOCUMENTS = "rung", "× previous", "× baseline", "tokens seen", "documents seen"
_COLUMNS = (_ROW, _PREVIOUS, _BASELINE, _TOKENS, _DOCUMENTS)

_DRAWN = (
    "Training reads windows at random places of a text in which all documents are joined, so a run sees parts of "
    "documents and no number of them."
)
_STREAMED = "The documents of a stream are not counted in the record of a run."


def _content(comparison: Comparison) -> Iterator[Block]:
    rungs = ladder(comparison)
    if not rungs:
        return
    yield Table.of(_COLUMNS, map(_ours, rungs), right=_COLUMNS[1:])
    yield (
        "Speed is tokens per second. × previous counts from the last rung above that has a figure, × baseline from the "
        "first row. Brackets of one column hold together in 95 % of studies. Tokens are those of training in one run."
    )
    yield f"Documents seen: {_reason(comparison)}"
    if any(one.printed for one in rungs):
        yield Table.of(_COLUMNS, (_theirs(one.printed) for one in rungs if one.printed), right=_COLUMNS[1:])
        yield (
            "This second table has the document's own figures. Where it has no speed of a row, the next row counts "
            "from the last one above, so its × previous may span two rows of ours."
        )
        if any(one.printed is not None and one.printed.tokens is not None for one in rungs):
            yield (
                "The document trains every rung for about the same time, and its tokens seen include validation. Here "
                "every rung has a number of steps, and tokens seen are that number times the tokens of a step."
            )


def _reason(comparison: Comparison) -> str:
    techniques = comparison.record.base.optimizations
    return _STREAMED if any(one.name == "streaming" for one in techniques) else _DRAWN


def _ours(one: Rung) -> Sequence[str]:
    tokens = UNKNOWN if one.tokens is None else format_count(one.tokens)
    return one.row.treatment, _times(one.previous), _times(one.baseline), tokens, UNKNOWN


def _theirs(found: Printed) -> Sequence[str]:
    multiples = (UNKNOWN if value is None else _number(value) for value in (found.previous, found.baseline))
    counts = (UNKNOWN if value is None else f"{value:,.0f}" for value in (found.tokens, found.documents))
    return found.name, *multiples, *counts


def _times(one: Multiple | None) -> str:
    if one is None:
        return UNKNOWN
    ends = "" if one.interval is None else f" [{_number(one.interval[0])}, {_number(one.interval[1])}]"
    return _number(one.value) + ends


def _number(value: float) -> str:
    return f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def _values(comparison: Comparison) -> dict[str, Any]:
    rungs = ladder(comparison)
    return {
        "rungs": [
            {
                "row": one.row.treatment,
                "times_previous": None if one.previous is None else one.previous._asdict(),
                "times_baseline": None if one.baseline is None else one.baseline._asdict(),
                "tokens_seen": one.tokens,
                "documents_seen": None,
                "document": None if one.printed is None else one.printed._asdict(),
            }
            for one in rungs
        ],
        "documents_seen_reason": _reason(comparison),
    }


SECTION = Section("ladder", "Rung by rung", _content, _values)
