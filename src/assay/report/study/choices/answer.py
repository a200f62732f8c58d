"""The answer in at most three sentences: the rows to choose from, a target or a warning, and what remains open.

A study with factors that are context has them for each of their levels.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.caveats import before
from assay.analysis.choose.answer import Candidate, FoundTarget, StudyAnswer, answers
from assay.analysis.choose.answer import found as found_by
from assay.analysis.choose.criteria import LogChange
from assay.analysis.comparison import Comparison
from assay.analysis.effects import LEAST_SEEDS
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import seeds_of
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.report.blocks import Block
from assay.report.study.choices.wording import change, in_nats, names, nats, plain, target_ratio, time_title
from assay.report.study.expectations import counted
from assay.report.study.section import Section
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
    if found and comparison.record.context and (untold := _untold(comparison)):
        yield f"The study cannot tell {untold}."
    if found and (said := limited(comparison)):
        yield said


def _at(found: StudyAnswer) -> str:
    """Return the context of an answer and a colon, to stand before it; empty if a study has one context."""
    return f"{found.context.name}: " if found.context.levels else ""


def limited(comparison: Comparison) -> str:
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


SECTION = Section("answer", "The answer", _content, _values, printed=False, leads=True)


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
        said = counted(study)  # such a study asks of losses, not of savings
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
    if not found.context.levels and (untold := _untold(comparison)):
        parts.append(untold)
    lost = [row.treatment for row in comparison.rows if row.status not in _RESULTS]
    if lost := [name for name in lost if name in found.context.rows]:
        parts.append(f"how {names(lost)} would have ended")
    said = [f"the study cannot tell {'; '.join(parts)}"] if parts else []
    if found.target is not None and found.worse:
        said.insert(0, _worse(comparison, found.worse))
    return "; ".join(said)[:1].upper() + "; ".join(said)[1:] + "." if said else ""


def _untold(comparison: Comparison) -> str:
    """Return which changes of the step time are too small for the study; empty if that is not known."""
    resolution = comparison.resolution.get(STEP_SECONDS.name)
    return f"changes of the step time below about {100 * resolution.told:.1f} %" if resolution else ""


def _plain(one: Candidate | None) -> dict[str, Any] | None:
    if one is None:
        return None
    loss = one.loss and {"nats": one.loss.nats, "interval": one.loss.interval, "verdict": one.loss.verdict.value}
    return {"row": one.row.treatment, "time": plain(one.time), "memory": plain(one.memory), "loss": loss}
