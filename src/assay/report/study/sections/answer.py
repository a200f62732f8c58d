"""The answer of a study, and its last lines: the baseline beside it, and what to run next.

The answer is the headline and at most three more sentences: the trade-off, the surprise, and what cannot be told. None
has an interval or more than thirty words. Intervals belong into the table. A record without a digest has one sentence
more.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assay.analysis.caveats import before
from assay.analysis.choose.answer import Candidate, StudyAnswer, answers
from assay.analysis.choose.series import ladder
from assay.analysis.claims import Outcome
from assay.analysis.comparison import Comparison
from assay.analysis.effects import LEAST_SEEDS
from assay.analysis.factors.additivity import deviations
from assay.analysis.factors.changes import ChangeEstimate
from assay.analysis.metrics.standard import STEP_SECONDS, TENSORS_PEAK_BYTES, loss_of
from assay.analysis.row import seeds_of
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.report.comparison.row_table import size
from assay.report.comparison.wording import (
    columns,
    few,
    figure,
    in_nats,
    is_exact,
    plain,
    status,
    two_digits,
    whole_percent,
)
from assay.report.kit.blocks import Block, arguments, option, stack
from assay.report.study.headline import ENDINGS, at_loss, capital, count_words, known_amount
from assay.report.study.sections import Section
from assay.report.study.sections.stated import judgements, refuted_rows
from assay.report.study.summary import is_wrong
from assay.units import format_seconds

if TYPE_CHECKING:
    from assay.report.study.view import StudyView

_RESULTS = (Status.DONE, Status.BUDGET_REACHED)


def _content(study: "StudyView") -> Iterator[Block]:
    if study.headline:
        yield study.headline
        yield from filter(None, (way(study, study.of(answers)) for way in (_trade_off, _surprise, _untold)))
        yield from study.comparison.record.doubts


def time_limit_sentence(comparison: Comparison) -> str:
    """Return the sentence on a limit of time that ended the study; empty if none did."""
    record = comparison.record
    if record.ending is not StudyEnding.BUDGET_REACHED:
        return ""
    return f"The limit of time ended the study{before(record)}; the notes say what it therefore cannot conclude."


def _values(study: "StudyView") -> dict[str, Any]:
    found = study.of(answers)
    if not found:
        return {}
    text = {"headline": study.headline, "text": study.answer}
    if not study.comparison.record.context:
        return {**_chosen(found[0]), **text}
    return {"by_context": [{"context": dict(one.context.levels), **_chosen(one)} for one in found], **text}


def _chosen(found: StudyAnswer) -> dict[str, Any]:
    return {
        "fastest": _plain(found.fastest),
        "as_fast": list(found.rivals),
        "lightest": _plain(found.lightest),
        "as_light": list(found.as_light),
        "lowest_loss": _plain(found.lowest),
        "saving_at_worse_loss": [_plain(one) for one in found.worse],
        "saving_at_unknown_loss": [_plain(one) for one in found.unsure],
        "first_at_target": None if found.first is None else found.first.row.treatment,
    }


ANSWER = Section("answer", "The answer", _content, _values, printed=False, leads=True)


_MOST_WORDS = 30
"""Most words of a sentence."""


def _sentence(parts: Sequence[str], joint: str = "; ") -> str:
    """Return as many parts as one sentence holds, the first always."""
    said = ""
    for part in filter(None, parts):
        longer = f"{said}{joint}{part}" if said else part
        if said and count_words(longer) > _MOST_WORDS:
            continue
        said = longer
    return f"{capital(said)}." if said else ""


def _trade_off(study: "StudyView", found: tuple[StudyAnswer, ...]) -> str:
    """Return the sentence on the lightest row, the lowest loss, and rows that save at a worse loss."""
    if len(found) != 1:
        return ""
    one = found[0]
    light = _lightest(study, one)
    rivals = _rivals(study, one, f"{study.headline} {light}")
    return _sentence([_paid(one), light, _worse(study, one), *rivals, climb_finding(study), _low(study, one)])


def _paid(one: StudyAnswer) -> str:
    """Return the clause on the steps that the fastest row needs to earn back its longer first step."""
    found = None if one.fastest is None else one.fastest.row.break_even
    if one.fastest is None or found is None or found.steps is None:
        return ""
    beyond = ", beyond the end of this run" if found.steps > found.run_steps else ""
    price = f"its first step takes {format_seconds(found.price_seconds)} longer"
    return f"{one.fastest.row.label} pays after {found.steps:,} steps{beyond}: {price}"


def _rivals(study: "StudyView", one: StudyAnswer, said: str) -> Iterator[str]:
    """Yield the clauses on rows that may be as fast or as light as a row that was said to be the best."""
    for rows, best, what in ((one.rivals, one.fastest, "fast"), (one.as_light, one.lightest, "light")):
        if rows and best is not None and best.row.label in said:
            beside = f" as {best.row.label}" if what == "fast" else ""
            yield f"{few([study.comparison.names[row] for row in rows])} may be as {what}{beside}"


def _lightest(study: "StudyView", one: StudyAnswer) -> str:
    """Return the clause on the lightest row, if the headline has not named it."""
    light, timed = one.lightest, study.comparison.record.timed
    if light is None or one.fastest is None or light.row.treatment == one.fastest.row.treatment:
        return ""
    said = f"{light.row.label} is the lightest: {known_amount(light.memory, 'memory')}"
    return f"{at_loss(light)}, {said}{_price(light) if timed else ''}"


def _price(light: Candidate) -> str:
    """Return the words on the time of the lightest row, which may be too noisy for an amount."""
    if light.time is None:
        return ""
    if known := known_amount(light.time, "time"):
        return f", but {known}" if light.time.sign > 0 else f" and {known}"
    return f"; its time ({whole_percent(light.time.fraction)}) is too noisy to tell"


def _worse(study: "StudyView", one: StudyAnswer) -> str:
    """Return the clause on rows that save at a worse loss; one row with what it saves."""
    if not one.worse:
        return ""
    first, *others = one.worse
    if others:
        what = "time or memory" if study.comparison.record.timed else "memory"
        return f"{few([each.row.label for each in one.worse])} save {what}, but at a worse loss"
    time = first.time if first.time is not None and first.time.sign < 0 else None
    saved = known_amount(time, "time") or known_amount(first.memory, "memory")
    little = saved.startswith(("the same", "about the same"))
    return f"{first.row.label} {'has' if little else f'takes {saved}, but at'} a worse loss"


def climb_finding(study: "StudyView") -> str:
    """Return the clause on the highest rung of a ladder whose document has speeds."""
    rungs = [one for one in study.of(ladder) if one.baseline and one.printed and one.printed.baseline]
    best = max(rungs, key=lambda one: one.baseline.value if one.baseline else 0.0, default=None)
    if best is None or best.baseline is None:
        return ""
    return f"{best.row.label} trains the most tokens a second: {best.baseline.value:.2g} × the first rung's"


def _low(study: "StudyView", one: StudyAnswer) -> str:
    low = one.lowest
    searched = study.comparison.record.halving is not None  # its headline has the lowest loss of its last rung
    if low is None or low.loss is None or low.row.label in study.headline or searched:
        return ""
    below = f"{two_digits(abs(low.loss.nats))}{in_nats(study.comparison)} below the baseline"
    return f"the loss is lowest with {low.row.label}: {below}"


def _surprise(study: "StudyView", found: tuple[StudyAnswer, ...]) -> str:
    """Return the sentence on wrong rows, refuted expectations, rows without figures, and gains that do not add up."""
    return _sentence([_wrong(study), additivity_finding(study), _ended(study), expectations_finding(study)])


def _wrong(study: "StudyView") -> str:
    rows = study.comparison.rows
    if wrong := [row.label for row in rows if is_wrong(row)]:
        return f"do not use {few(wrong)}: the values are wrong"
    flagged = [row.label for row in rows if row.flags]
    return f"mind the caution on {few(flagged)}" if flagged else ""


def expectations_finding(study: "StudyView") -> str:
    """Return which expectations are refuted, or else how many are confirmed."""
    outcomes = [one.outcome for one in study.of(judgements)]
    count = len(outcomes)
    if refuted := refuted_rows(study):
        number = outcomes.count(Outcome.REFUTED)
        if count == 1:
            return f"the expectation is refuted ({few(refuted)})"
        good = outcomes.count(Outcome.CONFIRMED)
        told = f"{good or 'none'} of {count} expectations {_be(good)} confirmed"
        return f"{told}, {number} {_be(number)} refuted ({few(refuted)})"
    confirmed = outcomes.count(Outcome.CONFIRMED)
    if count == 1 and not confirmed:
        return "the expectation is neither confirmed nor refuted"
    if confirmed < count:
        return f"{confirmed or 'none'} of {count} expectations {_be(confirmed)} confirmed, and none is refuted"
    every = {1: "the expectation is", 2: "both expectations are"}.get(count, f"all {count} expectations are")
    return f"{every} confirmed" if count else ""


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _ended(study: "StudyView") -> str:
    """Return how rows ended that have no figures, if the headline has not said it."""
    ended: dict[str, list[str]] = {}
    for row in study.comparison.rows:
        if row.status in ENDINGS and not is_wrong(row):
            ended.setdefault(ENDINGS[row.status], []).append(row.label)
    said = (f"{few(rows)} {words}" for words, rows in ended.items() if words not in study.headline)
    return " and ".join(said)


def additivity_finding(study: "StudyView") -> str:
    """Return whether changes add up, with the row that does so least: in memory, else in time, else in the loss."""
    found = {one.metric: [row for row in one.deviations if _apart(row.points)] for one in study.of(deviations)}
    for metric, what in _asked(study.comparison):
        told = (row for row in found.get(metric, ()) if row.points.interval or is_exact(metric))
        if rows := [row for row in told if abs(row.points.value) >= _WORTH]:
            row = max(rows, key=lambda one: abs(one.points.value))
            kind = "gains" if all(part < 0 for part in row.parts) else "changes"
            together = f"{study.comparison.names[row.row]} changes {what} by {whole_percent(row.change)}"
            return f"{kind} do not add up: {together}, where its parts sum to {whole_percent(row.expected)}"
    return "changes add up, as far as this study can tell" if found and not any(found.values()) else ""


def _asked(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the metrics in the order in which deviations are said, each with its word."""
    memory, time = (TENSORS_PEAK_BYTES.name, "memory"), (STEP_SECONDS.name, "time")
    loss = (loss_of(comparison.run).name, "the loss")
    # Without times a study asks for the loss, and memory is what it happened to take.
    return [memory, time, loss] if comparison.record.timed else [loss, memory]


def _apart(one: ChangeEstimate) -> bool:
    """Return whether a deviation contradicts a sum; one without an interval does if it is worth a word."""
    if one.interval is None:
        return abs(one.value) >= _WORTH
    return not one.interval[0] <= 0 <= one.interval[1]


_WORTH = 0.01
"""Least deviation that is worth a word: one point."""


_CANNOT = "the study cannot tell"


def _untold(study: "StudyView", found: tuple[StudyAnswer, ...]) -> str:
    """Return the sentence on what the study cannot tell: losses of rows that save, lost rows, small changes of times.

    It begins with the limit of time, if that ended the study.
    """
    comparison = study.comparison
    unsure = [each.row for one in found for each in one.unsure]
    parts = []
    if unsure:
        whether = f"whether the loss of {few([row.label for row in unsure])} is as good"
        why = f"{whether}, with fewer than three seeds"
        scarce = any(len(seeds_of(comparison.record.of(row.treatment))) < LEAST_SEEDS for row in unsure)
        parts.append(why if scarce and len(f"{_CANNOT} {why}".split()) <= _MOST_WORDS else whether)
    if lost := [row.label for row in comparison.rows if row.status not in (*_RESULTS, *ENDINGS)]:
        parts.append(f"how {few(lost)} would have ended")
    if (least := comparison.resolution.get(STEP_SECONDS.name)) is not None:
        noisy = any(change.noisy(least.told) for one in study.summary.rows for change in one.changes)
        marked = " or those marked ≈" if noisy else ""
        parts.append(f"changes of the step time below {two_digits(100 * least.told)} %{marked}")
    if comparison.record.ending is StudyEnding.BUDGET_REACHED:
        ended = f"the limit of time ended the study{before(comparison.record)}"
        return _sentence([ended, *(f"it cannot tell {part}" for part in parts[:1])])
    return _sentence([f"{_CANNOT} {parts[0]}", *parts[1:]], ", or ") if parts else ""


def _plain(one: Candidate | None) -> dict[str, Any] | None:
    if one is None:
        return None
    loss = one.loss and {"nats": one.loss.nats, "interval": one.loss.interval, "verdict": one.loss.verdict.value}
    return {"row": one.row.treatment, "time": plain(one.time), "memory": plain(one.memory), "loss": loss}


_MOST = 2
"""Most rows whose fault is named."""


def closing(study: "StudyView") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the last lines."""
    comparison = study.comparison
    yield "result", study.answer or no_answer(comparison)
    figures = (
        (metric.title, figure(metric, comparison.baseline.metrics.get(metric.name)))
        for metric in columns(comparison.run)
    )
    known = [f"{title} {text}" for title, text in figures if text]
    if known:
        yield "against", f"the baseline: {', '.join(known)}; {size(comparison)}"
    yield from (("next", hint) for hint in hints(study))


def no_answer(comparison: Comparison) -> str:
    """Return the sentence on why a study has no answer."""
    if comparison.baseline.finished and any(row.finished for row in comparison.rows):
        return "Nothing has all its runs yet, so nothing is chosen; the table has the figures of those that have ended."
    said = "Nothing has finished, so nothing can be compared."
    return " ".join(filter(None, (said, time_limit_sentence(comparison))))


def hints(study: "StudyView") -> Iterator[str]:
    """Yield commands to run next, each with what it does."""
    comparison, record = study.comparison, study.comparison.record
    if record.ending is not StudyEnding.COMPLETE:
        yield f"assay study resume {record.id}    does the runs that have no result"
    lost = [row for row in comparison.rows if row.status.failure and row.runs]
    yield from (f"assay runs show {row.runs[0]}    {row.treatment}: {status(row)}" for row in lost[:_MOST])
    found = study.of(answers)
    for one in found:
        yield from _trained(comparison, one)
    for one in found:
        yield from _surer(comparison, one)
    if not found and record.ending is StudyEnding.COMPLETE and not lost:
        yield f"assay study status {record.id}    shows what failed"


def _trained(comparison: Comparison, found: StudyAnswer) -> Iterator[str]:
    """Yield the command that trains with this choice: the fastest, or else the lightest."""
    chosen = found.fastest or found.lightest
    cells = () if chosen is None else comparison.record.of(chosen.row.treatment)
    run = cells[0].cell.run if cells else None
    written = None if run is None else arguments(run, comparison.record.title, seed=False)
    if chosen is not None and written is not None:
        told = f"{written} {_with(comparison, chosen.row.treatment)}".strip()
        where = f" at {found.context.name}" if found.context.levels else ""
        yield f"assay train {told}    trains with this choice{where}"


def _surer(comparison: Comparison, found: StudyAnswer) -> Iterator[str]:
    """Yield the comparison of the undecided rows over more seeds, if too few of them are the reason."""
    record = comparison.record
    written = arguments(record.base, record.title, seed=False)
    if record.kind != "comparison" or written is None or not found.unsure or len(record.seeds) >= LEAST_SEEDS:
        return
    rows = " ".join(_with(comparison, one.row.treatment) for one in found.unsure)
    yield f"assay compare {written} {rows} --seeds {LEAST_SEEDS}    tells whether losses are as good"


def _with(comparison: Comparison, treatment: str) -> str:
    """Return the option that turns on the techniques of a row: in a comparison its own name, as it was typed."""
    record = comparison.record
    return option(treatment) if record.kind == "comparison" else stack(record.of(treatment)[0].cell.run)
