"""The answer of a study in at most three sentences, and its last lines: the baseline beside it, what to run next.

A study with factors that are context has them for each of their levels.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.caveats import before
from assay.analysis.choose.answer import Candidate, FoundTarget, StudyAnswer, answers
from assay.analysis.choose.answer import search_outcome as found_by
from assay.analysis.choose.criteria import LogChange
from assay.analysis.comparison import Comparison
from assay.analysis.effects import LEAST_SEEDS
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import seeds_of
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.report.blocks import Block
from assay.report.comparison.row_table import size
from assay.report.comparison.wording import columns, figure, status
from assay.report.kit.command import arguments, option, stack
from assay.report.study.section import Section
from assay.report.study.sections.stated import count_outcomes
from assay.report.study.sections.wording import change, in_nats, names, nats, plain, target_ratio, time_title
from assay.units import format_seconds

if TYPE_CHECKING:
    from assay.report.study.view import StudyView

_RESULTS = (Status.DONE, Status.BUDGET_REACHED, Status.DIVERGED, Status.OUT_OF_MEMORY)
"""Endings of a row that say something of it."""


def _content(study: "StudyView") -> Iterator[Block]:
    comparison, search = study.comparison, found_by(study.comparison.record)
    if search is not None:
        yield _search(search)
    found = study.of(answers)
    for one in found:
        said = " ".join(filter(None, (_choice(study, one), _second(comparison, one), _open(comparison, one))))
        yield f"{_at(one)}{said}"
    if found and comparison.record.context and (untold := _untold_changes(comparison)):
        yield f"The study cannot tell {untold}."
    if found and (said := time_limit_sentence(comparison)):
        yield said


def _at(found: StudyAnswer) -> str:
    """Return the context of an answer and a colon, to stand before it; empty if a study has one context."""
    return f"{found.context.name}: " if found.context.levels else ""


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
    text = {"text": study.answer}
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


def _search(search: FoundTarget) -> str:
    """Return the sentences on a search: how many rows went on, and the best one at the end."""
    first, *others = search.counts
    said = f"Of {first} rows, {' and then '.join(map(str, others))} went on to more steps."
    if search.best is None or search.loss is None:
        return said
    control = "" if search.control is None else f", the control's {search.control:.4f}"
    return (
        f"{said} The best at the end is {search.best}, with a validation loss of {search.loss:.4f}{control}. The best "
        "of many is best by luck as well: a study that starts from this one (start_from) measures it on seeds of its "
        "own. Losses can be compared between rows with the same number of steps."
    )


def _choice(study: "StudyView", found: StudyAnswer) -> str:
    """Return the sentence on the fastest row, the lightest one and the one with the lowest loss."""
    comparison = study.comparison
    as_good = f"no worse loss (within {comparison.record.loss_margin:g}{in_nats(comparison)})"
    fast, light, low = found.fastest, found.lightest, found.lowest
    if fast is None and light is None and comparison.record.expects and not comparison.record.timed:
        said = count_outcomes(study)  # such a study asks of losses, not of savings
    elif fast is None and light is None:
        said = f"No row is shown to save {'time or ' * comparison.record.timed}memory at {as_good}"
    elif fast is not None and light is not None and fast.row.treatment == light.row.treatment:
        changes = _changes(comparison, found, fast)
        both = f"the fastest{_rivals(found)} and the lightest{_as_light(found)}"
        said = f"At {as_good}, {fast.row.treatment} is both {both} ({changes})"
    else:
        parts = []
        if fast is not None:
            changes = _changes(comparison, found, fast)
            parts.append(f"{fast.row.treatment} is the fastest{_rivals(found)} ({changes})")
        if light is not None:
            changes = _changes(comparison, found, light, memory_first=True)
            parts.append(f"{light.row.treatment} is the lightest{_as_light(found)} ({changes})")
        said = f"At {as_good}, {' and '.join(parts)}"
    if low is not None:
        changes = _changes(comparison, found, low)
        said += f"; {low.row.treatment} has the lowest loss ({nats(low.loss)}{in_nats(comparison)}; {changes})"
    return f"{said}."


def _rivals(found: StudyAnswer) -> str:
    return f", as far as it can be told from {names(found.rivals)}," if found.rivals else ""


def _as_light(found: StudyAnswer) -> str:
    return f", as is {names(found.as_light)}" if found.as_light else ""


def _changes(comparison: Comparison, found: StudyAnswer, one: Candidate, *, memory_first: bool = False) -> str:
    """Return the changes of time and memory of one row, that for which it was chosen first."""
    parts = [f"{time_title(comparison)} {_told(one.time)}"] if comparison.record.timed else []
    memory = f"{found.memory.title} {_told(one.memory)}"
    return "; ".join([memory, *parts] if memory_first else [*parts, memory])


def _told(one: LogChange | None) -> str:
    return f"{change(one)}{'' if one is None or one.sign or not one.log else ' not distinguishable'}"


def _second(comparison: Comparison, found: StudyAnswer) -> str:
    """Return the sentence on a stated target, or else on rows that save at a worse loss."""
    if found.target is None:
        return f"{_worse(comparison, found.worse)}." if found.worse else ""
    aim = f"a {found.target.basis} of {found.target.target:g}"
    if found.first is None:
        return f"No row reaches {aim} for good at every seed."
    time, ratio = found.first.seconds, found.first.ratio
    when = f"{found.first.steps:.0f} steps" if time is None else f"{format_seconds(time)} of steps"
    against = "" if ratio is None else f" ({target_ratio(ratio)} against the control)"
    return f"{found.first.row.treatment} is the first to reach {aim} for good, after {when}{against}."


def _worse(comparison: Comparison, some: tuple[Candidate, ...]) -> str:
    said = [f"{one.row.treatment} ({_saving(comparison, one)}; {nats(one.loss)}{in_nats(comparison)})" for one in some]
    what = "time or memory" if comparison.record.timed else "memory"
    return f"{names(said)} {'save' if len(said) > 1 else 'saves'} {what} at a worse loss"


def _saving(comparison: Comparison, one: Candidate) -> str:
    """Return the change of the time of a row that saves time, and otherwise that of its memory."""
    if one.time is not None and one.time.sign < 0:
        return f"{time_title(comparison)} {change(one.time)}"
    return f"memory {change(one.memory)}"


def _open(comparison: Comparison, found: StudyAnswer) -> str:
    """Return the sentence on what the study cannot tell, and on rows with a worse loss if none said it before."""
    parts = []
    if found.unsure:
        rows = [f"{one.row.treatment} ({_saving(comparison, one)})" for one in found.unsure]
        few = any(len(seeds_of(comparison.record.of(one.row.treatment))) < LEAST_SEEDS for one in found.unsure)
        seeds = ", with fewer than three seeds" if few else ""
        parts.append(f"whether the loss of {names(rows)} is as good{seeds}")
    if not found.context.levels and (untold := _untold_changes(comparison)):
        parts.append(untold)
    lost = [row.treatment for row in comparison.rows if row.status not in _RESULTS]
    if lost := [name for name in lost if name in found.context.rows]:
        parts.append(f"how {names(lost)} would have ended")
    said = [f"the study cannot tell {'; '.join(parts)}"] if parts else []
    if found.target is not None and found.worse:
        said.insert(0, _worse(comparison, found.worse))
    return "; ".join(said)[:1].upper() + "; ".join(said)[1:] + "." if said else ""


def _untold_changes(comparison: Comparison) -> str:
    """Return which changes of the step time are too small for the study; empty if that is not known."""
    resolution = comparison.resolution.get(STEP_SECONDS.name)
    return f"changes of the step time below about {100 * resolution.told:.1f} %" if resolution else ""


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
    yield "result", study.answer or _no_answer(comparison)
    figures = (
        (metric.title, figure(metric, comparison.baseline.metrics.get(metric.name)))
        for metric in columns(comparison.run)
    )
    known = [f"{title} {text}" for title, text in figures if text]
    if known:
        yield "against", f"the baseline: {', '.join(known)}; {size(comparison)}"
    yield from (("next", hint) for hint in _hints(study))


def _no_answer(comparison: Comparison) -> str:
    """Return why there is no answer."""
    if comparison.baseline.finished and any(row.finished for row in comparison.rows):
        return "no row has all its processes yet, so none is chosen; above are the figures of those that have ended"
    ended = time_limit_sentence(comparison)
    return f"no row has finished, so nothing can be compared{f'. {ended}' if ended else ''}"


def _hints(study: "StudyView") -> Iterator[str]:
    comparison, record = study.comparison, study.comparison.record
    if record.ending is not StudyEnding.COMPLETE:
        yield f"assay study resume {record.id}    runs the cells that have no result"
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
    """Yield the command that trains with the chosen row: the fastest, or else the lightest."""
    chosen = found.fastest or found.lightest
    cells = () if chosen is None else comparison.record.of(chosen.row.treatment)
    run = cells[0].cell.run if cells else None
    written = None if run is None else arguments(run, comparison.record.title, seed=False)
    if chosen is not None and written is not None:
        told = f"{written} {_with(comparison, chosen.row.treatment)}".strip()
        where = f" at {found.context.name}" if found.context.levels else ""
        yield f"assay train {told}    trains with the chosen row{where}"


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
