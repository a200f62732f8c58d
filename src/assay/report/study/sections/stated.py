"""Sections on claims: expectations, a published study, the rungs of a ladder with printed figures, and placebos."""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.series import Multiple, Printed, Rung, ladder
from assay.analysis.claims import (
    Beside,
    JudgedExpectation,
    Outcome,
    Placebo,
    beside,
    judge_expectations,
    placebos,
    recompute_changes,
)
from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect
from assay.analysis.factors.changes import factor_effects
from assay.analysis.factors.layout import effect_name
from assay.analysis.metrics import metrics
from assay.records.published import PublishedColumn, PublishedStudy
from assay.records.study import Expectation
from assay.report.comparison.wording import interval
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table
from assay.report.study.sections import Section
from assay.units import format_count, format_percent

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _expectations_content(study: "StudyView") -> Iterator[Block]:
    if study.comparison.record.expects:
        found = study.of(judgements)
        rows = ((_expectation(one.expectation, study.comparison), one.outcome.value, _found(one)) for one in found)
        yield Table.of(("expected before the run", "outcome", "measured"), rows)


def _expectations_values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            **one.expectation.model_dump(mode="json"),
            "outcome": one.outcome.value,
            "measured": None if one.effect is None else one.effect.model_dump(mode="json"),
        }
        for one in study.of(judgements)
    ]


EXPECTATIONS = Section("expectations", "What was expected", _expectations_content, _expectations_values, leads=True)


def refuted_rows(study: "StudyView") -> list[str]:
    """Return the names of the rows and effects of which an expectation is refuted."""
    refuted = [one.expectation for one in study.of(judgements) if one.outcome is Outcome.REFUTED]
    return list(dict.fromkeys(_subject(one, study.comparison) for one in refuted))


def _subject(one: Expectation, comparison: Comparison) -> str:
    return effect_name(one.effect.items()) if one.effect else comparison.names.get(one.row, one.row)


def refuted_expectations(comparison: Comparison) -> list[str]:
    """Return the expectations that the study refutes, in words."""
    return [
        _expectation(one.expectation, comparison) for one in judgements(comparison) if one.outcome is Outcome.REFUTED
    ]


def judgements(comparison: Comparison) -> tuple[JudgedExpectation, ...]:
    """Return the expectations of a study with their outcomes."""
    expects = comparison.record.expects
    effects = factor_effects(comparison) if any(one.effect for one in expects) else ()
    return judge_expectations(expects, (comparison.again, *comparison.rows), effects)


def _expectation(one: Expectation, comparison: Comparison) -> str:
    return expectation_text(one, _subject(one, comparison))


def expectation_text(one: Expectation, what: str = "") -> str:
    """Return an expectation in words; `what` names its row or effect, if it has a shorter name."""
    known = metrics().get(one.metric)
    title = one.metric if known is None else known.title
    what = what or (effect_name(one.effect.items()) if one.effect else one.row)
    if one.change == "none":
        return f"{what}: {title} within {_size(one)}"
    return f"{what}: {title} {one.change}" + (f" by {_size(one)} or more" if one.size else "")


def _size(one: Expectation) -> str:
    return f"{100 * one.size:g} %"


def _found(one: JudgedExpectation) -> str:
    if one.effect is None:
        return "no figure"
    if one.effect.equal:
        return "exactly equal"
    return " ".join(filter(None, (format_percent(one.effect.change), interval(one.effect.interval))))


def document_facts(published: PublishedStudy) -> Facts:
    """Return the document, the place of its figures and its setup."""
    facts = (("document", published.document), ("figures", published.place), ("setup", published.setup))
    return Facts.of((label, text) for label, text in facts if text)


def faults(published: PublishedStudy) -> Iterator[str]:
    """Yield a sentence on each printed change that the table contradicts, and on each other fault."""
    for one in recompute_changes(published):
        if one.contradicted:
            said, change = one.printed, format_percent(one.change)
            yield (
                f"The text prints {said.printed} for {said.column} of {said.row!r} against {said.against!r}; "
                f"by its own table the change is {change}."
            )
    yield from published.wrong


def number(column: PublishedColumn, figure: float | None) -> str:
    """Format a published figure with the decimals of its column."""
    return UNKNOWN if figure is None else f"{figure:,.{column.digits}f}"


def _published_content(study: "StudyView") -> Iterator[Block]:
    published = study.comparison.record.published
    if published is None:
        return
    yield document_facts(published)
    found = study.of(beside)
    if found:
        columns = ("figure", "row of the document", "document", "change there", "change here", "agreement")
        ordered = (one for column in published.columns for one in found if one.column == column)
        yield Table.of(columns, map(_published_row, ordered), right=columns[2:5], spare=("document",))
        yield f"Changes count from {published.control!r} there, unless a row says otherwise, and from its row here."
    yield from (f"{one.name}: {one.note}" for one in published.columns if one.note)
    wrong = list(faults(published))
    if wrong:
        yield "What was wrong with it:"
        yield from (f"– {one}" for one in wrong)


def _published_values(study: "StudyView") -> dict[str, Any]:
    published = study.comparison.record.published
    if published is None:
        return {}
    return {"document": published.document, "rows": list(map(_plain, study.of(beside))), **printed_values(published)}


def printed_values(published: PublishedStudy) -> dict[str, Any]:
    """Return the printed changes with the recomputed ones, and the faults, as plain values."""
    changes = [
        {**one.printed.model_dump(), "by_the_table": one.change, "contradicted": one.contradicted}
        for one in recompute_changes(published)
    ]
    return {"printed": changes, "wrong": list(published.wrong)}


PUBLISHED = Section(
    "published",
    "Published against ours",
    _published_content,
    _published_values,
    caption="Only changes are compared: machine, software and often the model are not those of the document.",
)


def _published_row(one: Beside) -> tuple[str, ...]:
    against = f" (against {one.row.against})" if one.row.against not in (None, one.row.name) else ""
    there = UNKNOWN if one.change is None else format_percent(one.change)
    return (
        *(one.column.name, one.row.name + against, number(one.column, one.figure)),
        *(there, _here(one.ours), one.agreement.value),
    )


def _here(effect: Effect | None) -> str:
    if effect is None:
        return UNKNOWN
    return " ".join(filter(None, (format_percent(effect.change), interval(effect.interval))))


def _plain(one: Beside) -> dict[str, Any]:
    return {
        "name": one.row.name,
        "row": one.row.row,
        "column": one.column.name,
        "metric": one.column.metric,
        "figure": one.figure,
        "change": one.change,
        "ours": None if one.ours is None else one.ours.model_dump(mode="json"),
        "agreement": one.agreement.value,
    }


_ROW, _PREVIOUS, _BASELINE, _TOKENS, _DOCUMENTS = "rung", "× previous", "× baseline", "tokens seen", "documents seen"
_FIRST, _BOX, _MINUTES = "first loss", "tokens in its minutes", "minutes"
_COLUMNS = (_ROW, _PREVIOUS, _BASELINE, _TOKENS, _DOCUMENTS)

_DRAWN = (
    "Without a stream, training reads windows at random places of a text in which all documents are joined, so a run "
    "sees parts of documents and no number of them."
)
_STREAMED = "A document of the stream counts once training has read a token of it, and again in each further pass."
_UNKNOWN = "Processes that load data read the stream, and the record of such a run has no number of documents."


def _ladder_content(study: "StudyView") -> Iterator[Block]:
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
    return one.row.label, _times(one.previous), _times(one.baseline), tokens, documents, first, in_its_minutes


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


def _ladder_values(study: "StudyView") -> dict[str, Any]:
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


LADDER = Section("ladder", "Rung by rung", _ladder_content, _ladder_values)


def _placebos_content(study: "StudyView") -> Iterator[Block]:
    found = study.of(placebos)
    if not found:
        return
    yield _sentence(found)
    rows = (_placebos_row(one, study.comparison.names) for one in found)
    yield Table.of(("placebo", "runs the row", "losses", "peak of tensors", "step time"), rows)


def _sentence(found: tuple[Placebo, ...]) -> str:
    one = len(found) == 1
    count = f"{len(found)} row{' runs' if one else 's run'} another row under a label of its own."
    same = all(each.losses_equal and each.peak_equal for each in found)
    what = (
        f"Losses are bit-equal and peaks of tensors are equal, so {'it changes' if one else 'they change'} nothing."
        if same
        else "Some losses or peaks are not those of the row repeated, so something other than the label differs."
    )
    changes = [each.step_change for each in found if each.step_change is not None]
    if not changes:
        return f"{count} {what}"
    low, high = map(format_percent, (min(changes), max(changes)))
    times = f"Its step time differs by {low}" if one else f"Their step times differ by {low} to {high}"
    return f"{count} {what} {times}: so far equal runs lie apart here by chance."


def _placebos_row(one: Placebo, labels: Mapping[str, str]) -> tuple[str, ...]:
    return (
        labels[one.row],
        labels[one.repeats],
        "bit-equal" if one.losses_equal else "NOT EQUAL",
        "equal" if one.peak_equal else "NOT EQUAL",
        UNKNOWN if one.step_change is None else format_percent(one.step_change),
    )


def _placebos_values(study: "StudyView") -> list[dict[str, Any]]:
    return [one._asdict() for one in study.of(placebos)]


PLACEBOS = Section("placebos", "Rows that change nothing", _placebos_content, _placebos_values)
