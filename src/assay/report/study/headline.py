"""The first sentence of a study's answer: what a colleague would say aloud, with two numbers at most.

Intervals belong into the table. A change is said in words where it is near a simple ratio: half, a third, twice.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from assay.analysis.choose.answer import Candidate, RowTarget, StudyAnswer, answers, search_outcome
from assay.analysis.choose.criteria import LogChange, LossVerdict
from assay.analysis.choose.series import RateSeries, learning_rates, rate_sweep
from assay.analysis.claims import placebos
from assay.analysis.effects import LEAST_SEEDS
from assay.analysis.factors.layout import JOINT, control_name, effect_name, layout, level_name
from assay.records.status import Status
from assay.records.study import BASELINE
from assay.report.comparison.wording import few, in_nats, names, two_digits
from assay.report.study.sections.factor_effects import loss_parts
from assay.studies.factors import OPTIMIZATIONS
from assay.units import format_seconds

if TYPE_CHECKING:
    from assay.report.study.view import StudyView

_SIMPLE = (
    (1 / 5, "a fifth of"),
    (1 / 4, "a quarter of"),
    (1 / 3, "a third of"),
    (1 / 2, "half"),
    (2, "twice"),
    (3, "three times"),
)
"""Ratios that are said in words."""
_NEAR = 0.06
"""Largest relative distance from a simple ratio."""
_DOUBTFUL = 0.1
"""Change that is no longer called about the same, although an interval has room for none."""
_LITTLE = 0.005
"""Change that rounds to no percent."""
_LARGE = 1.9
"""Ratio from which a figure is said as a multiple."""
_MOST_WORDS = 25
"""Most words of the sentence."""

ENDINGS = {
    Status.DIVERGED: "diverged",
    Status.OUT_OF_MEMORY: "ran out of memory",
    Status.WRONG_VALUES: "computed wrong values",
    Status.NO_EFFECT: "had no effect",
}
"""Endings of a row without figures, in words."""


def amount(change: float, noun: str) -> str:
    """Return a change as an amount of something: ``"half the time"``, ``"29 % less memory"``, ``"2.4 × the time"``."""
    ratio = 1 + change
    for simple, words in _SIMPLE:
        if abs(ratio / simple - 1) <= _NEAR:
            return f"{words} the {noun}"
    if abs(change) <= _LITTLE:
        return f"the same {noun}"
    if ratio < _LITTLE:
        return f"less than 1 % of the {noun}"
    if ratio >= _LARGE:
        return f"{ratio:.2g} × the {noun}" if ratio < 10 else f"{ratio:.0f} × the {noun}"
    return f"{100 * abs(change):.0f} % {'less' if change < 0 else 'more'} {noun}"


def share(change: float) -> str:
    """Return a change as a share: ``"a fifth of"``, ``"81 % of"``, ``"about"`` where it rounds to all of it."""
    ratio = 1 + change
    if abs(change) <= _LITTLE:
        return "about"
    if ratio < _LITTLE:
        return "less than 1 % of"
    return next((words for simple, words in _SIMPLE if abs(ratio / simple - 1) <= _NEAR), f"{100 * ratio:.0f} % of")


def count_words(text: str) -> int:
    """Return the number of words; signs such as × and · are none."""
    return sum(any(map(str.isalnum, one)) for one in text.split())


def capital(text: str) -> str:
    """Return a sentence with a capital, unless it begins with a name that one types, such as ``bf16_mixed``."""
    first = text.split(" ", 1)[0]
    return text if "_" in first or any(map(str.isdigit, first)) else f"{text[:1].upper()}{text[1:]}"


def known_amount(one: LogChange | None, noun: str) -> str:
    """Return an amount if it can be told from the control's; else that it is about the same, if it is near.

    Empty for a change that is missing, or that is large and yet cannot be told from none.
    """
    if one is None:
        return ""
    if one.sign or one.half is None:
        return amount(one.fraction, noun)
    return f"about the same {noun}" if abs(one.fraction) <= _DOUBTFUL else ""


def _short(*ways: str) -> str:
    """Return the first way to say something that is short enough, or else the last."""
    return next((one for one in ways if count_words(one) <= _MOST_WORDS), ways[-1])


def headline(study: "StudyView") -> str:
    """Return the sentence; empty if no row has ended, so that there is nothing to say."""
    found = study.of(answers)
    said = next(filter(None, (said for way in _WAYS for said in way(study, found))), "")
    return f"{capital(said)}." if said else ""


def _searched(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    search = search_outcome(study.comparison.record)
    if search is not None and search.best is not None and search.loss is not None:
        below = "" if search.control is None else f", {_against(study, search.loss - search.control)}"
        best = study.comparison.names[search.best]
        yield f"of {search.counts[0]} configurations, {best} ended with the lowest loss{below}"


def _against(study: "StudyView", nats: float) -> str:
    """Return a difference of losses from the control's."""
    unit, side = in_nats(study.comparison), "below" if nats < 0 else "above"
    return f"{two_digits(abs(nats))}{unit} {side} {_control(study)}"


def _idle(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    """Say that dead switches change nothing, where most rows are placebos."""
    idle = study.of(placebos)
    if 2 * len(idle) < len(study.comparison.rows):
        return
    if all(one.losses_equal and one.peak_equal for one in idle):
        same = "the loss and the memory of what it repeats"
        yield f"a dead switch changes nothing: each of {len(idle)} such switches has {same}"
    else:
        yield "a dead switch seems to change something, so something other than the label differs"


def _targeted(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    for one in found:
        where = f"{one.context.name}: " if len(found) > 1 else ""
        if one.target is not None and one.first is not None:
            row = one.first.row
            name = "the baseline" if row.treatment == BASELINE else row.label
            aim = f"a {one.target.basis} of {one.target.target:g}"
            yield f"{where}{name} reaches {aim} first{_when(one.first)}{_on_few(len(study.comparison.record.seeds))}"
        elif one.target is not None:
            yield f"{where}nothing reaches a {one.target.basis} of {one.target.target:g} for good at every seed"


def _when(first: RowTarget) -> str:
    """Return the time in which the first row reaches a target: against the baseline's, or else in seconds."""
    if first.ratio is not None and first.row.treatment != BASELINE:
        return f", in {share(first.ratio.change)} the baseline's time"
    return "" if first.seconds is None else f", after {format_seconds(first.seconds)}"


def _by_context(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    """Say the best row of each case, or that one row is the best of all."""
    if len(found) < 2:
        return
    best = {one.context.name: _choice(one) for one in found}
    often = Counter(name for name in best.values() if name).most_common()
    if not often:
        where = "in either case" if len(found) == 2 else f"in any of {len(found)} cases"
        yield f"nothing is shown to save anything at the same loss, {where}"
    elif often[0][1] == len(found):
        yield f"{often[0][0]} is the best choice in {'both' if len(found) == 2 else f'all {len(found)}'} cases"
    else:
        count = f"{often[0][0]} is the best choice in {often[0][1]} of {len(found)} cases"
        each = "; ".join(f"{case}: {name} is best" for case, name in best.items())
        yield _short(each, count) if len(found) == 2 and all(best.values()) else count


def _choice(one: StudyAnswer) -> str:
    """Return the name of the fastest row of a case, or else the lightest, without the levels that are the case."""
    best, case = one.fastest or one.lightest, {level_name(*level) for level in one.context.levels}
    return "" if best is None else JOINT.join(part for part in best.row.label.split(JOINT) if part not in case)


def _chosen(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    for one in found:
        fast, light = one.fastest, one.lightest
        if fast is not None:
            memory = known_amount(fast.memory, "memory")
            said, price = f"{_take(study, fast)}: steps take {known_amount(fast.time, 'time')}", at_loss(fast)
            yield _short(*([f"{said} and {memory}, {price}"] if memory else []), f"{said}, {price}")
        elif light is not None:
            change = light.time if study.comparison.record.timed else None
            time = known_amount(change, "time")
            dear = "if memory is short, " if change is not None and change.sign > 0 else ""
            said = f"{dear}{_take(study, light)}: it takes {known_amount(light.memory, 'memory')}"
            longer = [f"{said} and {time}, {at_loss(light)}"] if time else []
            yield _short(*longer, f"{said}, {at_loss(light)}")


def _rates(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    """Say the best learning rate, by the batches at which it is, or where it holds beside other factors."""
    if best := [one.best for one in study.of(rate_sweep) if one.best]:
        every = study.of(learning_rates)  # a sweep leaves out a series of which every rate diverged
        said = _one_rate(every) or (_held if any(one.others for one in every) else _by_batch)(every)
        yield f"{said}{_on_few(min(one.seeds for one in best))}"


def _on_few(seeds: int) -> str:
    """Return the words on so few seeds that chance may have chosen; empty for enough of them."""
    return f", on {'one seed' if seeds == 1 else 'two seeds'}" if 0 < seeds < LEAST_SEEDS else ""


def _one_rate(every: Sequence[RateSeries]) -> str:
    """Return the rate that is the best of every series, or those that are as good in each; empty if there is none."""
    series = [one for one in every if one.best]
    best, shared = {one.best.rate for one in series if one.best}, _shared(series)
    if len(best) == 1:
        edge = _edge(series)
        good = f"; rates from {shared[0]:g} to {shared[-1]:g} are as good" if len(shared) > 1 else ""
        said = f"the best learning rate is {min(best):g}{_where(every)}"
        return _short(f"{said}{edge}{good}", f"{said}{good}")
    if len(shared) > 1:
        return f"learning rates from {shared[0]:g} to {shared[-1]:g} are as good as the best everywhere"
    return f"a learning rate of {shared[0]:g} is as good as the best everywhere" if shared else ""


def _edge(series: Sequence[RateSeries]) -> str:
    """Return the warning that the best rate is the last that was tested on one side, in every series."""
    ends = {one.open_ended.removesuffix("er") for one in series}
    return f", the {ends.pop()}est that was tested" if len(ends) == 1 and "" not in ends else ""


def _shared(series: Sequence[RateSeries]) -> list[float]:
    """Return the rates that are as good as the best in every series, in ascending order."""
    return sorted(set.intersection(*({rate.rate for rate in one.good} for one in series)))


def _where(every: Sequence[RateSeries]) -> str:
    """Return the series that have a best rate, in words: all of them, or how many; empty if there is one."""
    known = [one for one in every if one.best]
    if len(every) == 1:
        return ""
    if any(one.others for one in every):
        cases = "both" if len(every) == 2 else f"all {len(every)}"
        return f" in {cases if len(known) == len(every) else f'{len(known)} of {len(every)}'} cases"
    return (
        " at every batch" if len(known) == len(every) else f" at batch {names([str(one.batch_size) for one in known])}"
    )


def _by_batch(every: Sequence[RateSeries]) -> str:
    """Return the best rate at each batch, or the range of them."""
    batches: dict[float, list[str]] = {}
    for one in every:
        if one.best:
            batches.setdefault(one.best.rate, []).append(str(one.batch_size))
    if sum(map(len, batches.values())) <= _MOST_SERIES:
        said = [f"{rate:g} at batch {names(some)}" for rate, some in sorted(batches.items())]
        return f"the best learning rate is {names(said)}"
    return f"the best learning rate depends on the batch, from {min(batches):g} to {max(batches):g}"


def _held(every: Sequence[RateSeries]) -> str:
    """Return the level of a factor at which the best rate is the same beside all others, where it is not at another."""
    series = [one for one in every if one.best]
    for place, (key, _) in enumerate(series[0].levels):
        by_level: dict[str, list[RateSeries]] = {}
        for one in series:
            by_level.setdefault(one.levels[place][1], []).append(one)
        best = {level: {one.best.rate for one in some if one.best} for level, some in by_level.items()}
        held = {level: min(rates) for level, rates in best.items() if len(rates) == 1}
        others = [level for level in best if level not in held]
        if len(held) == 1 and len(best) < len(series) and not any(_shared(by_level[level]) for level in others):
            ((level, rate),) = held.items()
            moved = names([level_name(key, one) for one in others])
            throughout = f"the best learning rate is {rate:g} throughout with {level_name(key, level)}"
            return f"{throughout}{_edge(by_level[level])}, and moves with {moved}"
    everywhere = {one.best.rate for one in series if one.best}
    return f"the best learning rate moves from case to case, from {min(everywhere):g} to {max(everywhere):g}"


_MOST_SERIES = 3
"""Most batches of which each is said with its best learning rate."""


def _parts(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    """Say which parts lower the loss."""
    told = [one for one in loss_parts(study) if one.ratio.interval and one.ratio.interval[1] < 0]
    if told:
        most, *others = sorted(told, key=lambda one: one.ratio.value)
        share = f"{100 * abs(most.ratio.value):.2g} %"
        said = f"{effect_name(most.changes)} lowers the loss most, by {share} on average"
        more = [effect_name(one.changes) for one in others]
        yield _short(*([f"{said}; so {'does' if len(more) == 1 else 'do'} {names(more)}, less"] if more else []), said)


def _lowest(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    for one in found:
        if one.lowest is not None and one.lowest.loss is not None:
            yield f"the loss is lowest with {one.lowest.row.label}: {_against(study, one.lowest.loss.nats)}"


def _none(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    if found and study.comparison.record.timed:
        yield "nothing is shown to save time or memory at the same loss"
    elif found:
        yield f"nothing is shown to have a lower loss than {_control(study)}"


def _control(study: "StudyView") -> str:
    """Return the name of the control: its level, if the study has one factor whose levels are names."""
    keys = [one.key for one in layout(study.comparison.record).factors]
    told = control_name(study.comparison.record)
    return f"the baseline ({told})" if told and len(keys) == 1 and keys[0] != OPTIMIZATIONS else "the baseline"


def _unfinished(study: "StudyView", found: tuple[StudyAnswer, ...]) -> Iterator[str]:
    comparison = study.comparison
    for status, words in ENDINGS.items():
        ended = [row.label for row in comparison.rows if row.status is status]
        if ended and comparison.baseline.finished:
            yield f"{few(ended)} {words}"


_WAYS = (_searched, _idle, _targeted, _rates, _by_context, _parts, _chosen, _lowest, _none, _unfinished)
"""Functions that yield what may be said first; the first one with something to say decides."""


def _take(study: "StudyView", one: Candidate) -> str:
    """Return ``Turn on`` with techniques, and ``Choose`` with any other change."""
    keys = {key for key, _ in layout(study.comparison.record).changes(one.row.treatment)}
    return f"{'turn on' if keys == {OPTIMIZATIONS} else 'choose'} {one.row.label}"


def at_loss(one: Candidate) -> str:
    """Return the words on a chosen row's loss, which is no worse than the control's."""
    better = one.loss is not None and one.loss.verdict is LossVerdict.BETTER
    return "at a lower loss" if better else "at the same loss"
