"""The rungs of a ladder: speed against the rung before and the control, tokens seen, and the document's own figures."""

from collections.abc import Iterator, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.factors.ladder import Multiple, Printed, Rung, ladder
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN
from assay.report.study.section import Section
from assay.units import format_count

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


_ROW, _PREVIOUS, _BASELINE, _TOKENS, _DOCUMENTS = "rung", "× previous", "× baseline", "tokens seen", "documents seen"
_FIRST, _BOX, _MINUTES = "first loss", "tokens in its minutes", "minutes"
_COLUMNS = (_ROW, _PREVIOUS, _BASELINE, _TOKENS, _DOCUMENTS)

_DRAWN = (
    "Without a stream, training reads windows at random places of a text in which all documents are joined, so a run "
    "sees parts of documents and no number of them."
)
_STREAMED = "A document of the stream counts once training has read a token of it, and again in each further pass."
_UNKNOWN = "Processes that load data read the stream, and the record of such a run has no number of documents."


def _content(study: "StudyView") -> Iterator[Block]:
    rungs = study.of(ladder)
    if not rungs:
        return
    boxed = any(one.tokens_in_its_minutes is not None for one in rungs)
    columns = (*_COLUMNS, _FIRST, *([_BOX] if boxed else []))
    yield Table.of(columns, (_ours(one)[: len(columns)] for one in rungs), right=columns[1:])
    yield (
        "Speed is tokens per second. × previous counts from the last rung above that has a figure, × baseline from the "
        "first row. Brackets of one column hold together in 95 % of studies. Tokens are those of training in one run."
    )
    yield from _on_the_first_loss(study.comparison, rungs)
    yield f"Documents seen: {_note(study.comparison, rungs)}"
    if any(one.printed for one in rungs):
        theirs = (*_COLUMNS, *([_MINUTES] if boxed else []))
        rows = (_theirs(one.printed)[: len(theirs)] for one in rungs if one.printed)
        yield Table.of(theirs, rows, right=theirs[1:])
        yield (
            "This second table has the document's own figures. Where it has no speed of a row, the next row counts "
            "from the last one above, so its × previous may span two rows of ours."
        )
        if any(one.printed is not None and one.printed.tokens is not None for one in rungs):
            yield (
                "The document trains every rung for about the same time, and its tokens seen include validation. Here "
                "every rung has a number of steps, and tokens seen are that number times the tokens of a step."
            )
        if boxed:
            yield (
                f"“{_BOX.capitalize()}” is computed: our speed of the rung, times the minutes for which the document "
                "trains it. Start, compilation and evaluation are left out."
            )


def _on_the_first_loss(comparison: Comparison, rungs: Sequence[Rung]) -> Iterator[Block]:
    """Say what the first loss should be near, for models that are not a user's own."""
    model = comparison.run.model  # the base may not have the vocabulary, which is the tokenizer's
    if model.vocab_size and model.own is None and any(one.first_loss is not None for one in rungs):
        yield (
            "The first loss is that of the first step, before any update. Weights that begin at the right scale have "
            f"one near that of a uniform guess, ln V = {log(model.vocab_size):.3f}."
        )


def _note(comparison: Comparison, rungs: Sequence[Rung]) -> str:
    """Say how documents were counted, and why they were not on the other rungs."""
    return " ".join(dict.fromkeys(_counting(comparison, one) for one in rungs))


def _counting(comparison: Comparison, rung: Rung) -> str:
    if rung.documents is not None:
        return _STREAMED
    techniques = comparison.record.of(rung.row.treatment)[0].cell.run.optimizations
    return _UNKNOWN if any(one.name == "streaming" for one in techniques) else _DRAWN


def _ours(one: Rung) -> Sequence[str]:
    tokens, documents, in_its_minutes = (
        UNKNOWN if count is None else format_count(count)
        for count in (one.tokens, one.documents, one.tokens_in_its_minutes)
    )
    first = UNKNOWN if one.first_loss is None else f"{one.first_loss:.3f}"
    return one.row.treatment, _times(one.previous), _times(one.baseline), tokens, documents, first, in_its_minutes


def _theirs(found: Printed) -> Sequence[str]:
    multiples = (UNKNOWN if value is None else _number(value) for value in (found.previous, found.baseline))
    counts = (UNKNOWN if value is None else f"{value:,.0f}" for value in (found.tokens, found.documents))
    return found.name, *multiples, *counts, UNKNOWN if found.minutes is None else f"{found.minutes:.2f}"


def _times(one: Multiple | None) -> str:
    if one is None:
        return UNKNOWN
    ends = "" if one.interval is None else f" [{_number(one.interval[0])}, {_number(one.interval[1])}]"
    return _number(one.value) + ends


def _number(value: float) -> str:
    return f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def _values(study: "StudyView") -> dict[str, Any]:
    rungs = study.of(ladder)
    return {
        "rungs": [
            {
                "row": one.row.treatment,
                "times_previous": None if one.previous is None else one.previous._asdict(),
                "times_baseline": None if one.baseline is None else one.baseline._asdict(),
                "tokens_seen": one.tokens,
                "documents_seen": one.documents,
                "first_loss": one.first_loss,
                "tokens_in_its_minutes": one.tokens_in_its_minutes,
                "document": None if one.printed is None else one.printed._asdict(),
            }
            for one in rungs
        ],
        "documents_seen_note": _note(study.comparison, rungs),
    }


SECTION = Section("ladder", "Rung by rung", _content, _values)
