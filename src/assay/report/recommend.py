"""Advice on what to turn on as text, on one device and over several GPUs, and its figure."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.advise.advice import Advice
from assay.advise.placed import LayoutAdvice
from assay.hardware.devices import device
from assay.report.kit.blocks import Block, Facts, Table
from assay.report.kit.drawing import canvas, marker, series, with_print_colours
from assay.report.kit.view import Shown
from assay.report.predictions import (
    PREDICTED,
    batch_words,
    hours_words,
    money_words,
    span,
    trained_words,
    training_words,
)
from assay.units import format_bytes, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.advise.advice import Choice
    from assay.advise.placed import Layout
    from assay.analysis.comparison import Comparison
    from assay.estimator.cost import Training

_APART = 1.05
"""Measured times within this factor say nothing about an order."""
_LARGE = 2.0
"""Ratio of speeds from which it is said as a multiple."""
Measured = Mapping[str, float]
"""Measured seconds of a step, by the stack."""


class AdviceView(Shown[Advice]):
    """Advice on what to turn on, as a reader is shown it: with a whole training, and what a comparison measured."""

    def __init__(self, found: Advice, training: "Training | None" = None, verified: "Comparison | None" = None) -> None:
        super().__init__(found)
        self.training, self.verified = training, verified

    @cached_property
    def measured(self) -> Measured:
        """Measured seconds of a step by the stack; empty without a comparison."""
        rows = () if self.verified is None else self.verified.rows
        times = {row.treatment: row.metrics.get("step_seconds") for row in rows}
        return {title: time for title, time in times.items() if isinstance(time, float)}

    def blocks(self) -> Iterator[Block]:
        """Yield the answer in a sentence, its figures, a table of memory and speed, and its caveats."""
        found, training = self.found, self.training
        yield stack_sentence(found, training)
        yield Facts.of(_stack_answer(found, training))
        rows = [(one.title, _speed(found, one), format_bytes(one.need_bytes), _loss(one)) for one in found.frontier]
        speed, time = found.speed_unit, "step time" if found.device else "arithmetic"
        yield Table.of(("stack", speed, "needs", "loss"), rows, (speed, "needs"), ("loss",))
        if found.parts:
            yield Table.of(("element", time, "memory", "loss"), _contributions(found), (time, "memory"))
        if found.different:
            yield "These train differently, so the loss is another one. Each joins the recommended stack:"
            different = [(one.title, _speed(found, one), format_bytes(one.need_bytes)) for one in found.different]
            yield Table.of(("stack", speed, "needs"), different, (speed, "needs"))
        yield from (f"Caution: {one}." for one in found.warnings)
        yield _basis(found)
        yield from _left_out(found)
        if self.measured:
            yield _verdict(found, self.measured)

    def values(self) -> dict[str, Any]:
        """Return the figures of every stack for programs, with the training and the verification."""
        training = None if self.training is None else self.training.to_dict()
        found: dict[str, Any] = {"training": training, "verified": None}
        if self.verified is not None:
            held = kept_order(self.found, self.measured)
            found["verified"] = {"study": self.verified.record.id, "step_seconds": self.measured, "order_held": held}
        return Advice.to_dict(self.found) | found

    def frame(self) -> "pandas.DataFrame":
        """Return a row per stack of the frontier: tokens/s or FLOPs, bytes, numerics."""
        import pandas

        return pandas.DataFrame([self.found.plain(one) for one in self.found.frontier])

    def figure(self, name: str = "") -> "Figure":
        """Return the figure of memory and speed: the frontier, the recommended stack and the bare configuration."""
        found = self.found
        groups = {"frontier": found.frontier, "recommended": (found.recommended,), "nothing": (found.baseline,)}
        with canvas(5.0, 3.6, 1) as (drawn, (axis,)):
            for number, (label, points) in enumerate(groups.items()):
                axis.plot(
                    [one.need_bytes / _MIB for one in points],
                    [one.tokens_per_second for one in points],
                    color=series(number + 1),
                    marker=marker(number + 1),
                    linestyle="-" if label == "frontier" else "none",
                    label=label,
                )
            axis.axvline(found.budget_bytes / _MIB, linewidth=0.8, linestyle=":")
            axis.set(xlabel="needs, MiB", ylabel=found.speed_unit, xscale="log")
            axis.legend()
        return with_print_colours(drawn)


def kept_order(found: Advice, measured: Measured) -> bool:
    """True if no stack was measured to be noticeably faster than one that was ranked before it."""
    ranked = dict.fromkeys(one.title for one in found.ranked)
    times = [measured[title] for title in ranked if title in measured]
    return all(time * _APART >= max(times[: place + 1]) for place, time in enumerate(times))


def stack_sentence(found: Advice, training: "Training | None") -> str:
    """Return the sentence that a colleague would say first."""
    best = found.recommended
    here = _budget(found)
    where = f"one {device(found.device).name}" if found.absent else here
    need = "needs" if best.batch.sequences == 1 else "need"
    needs = f"{batch_words(best.batch)} {need} {format_bytes(best.need_bytes)} at most"
    room = f" of {format_bytes(found.budget_bytes)}" if found.absent else ""
    takes = "" if training is None else f", and {training_words(training)}"
    turned = f"with {best.title}" if best.stack else "with nothing turned on"
    basis = "" if found.device else "By arithmetic alone, because no device is named: "
    return f"{basis}{found.configuration} fits {where} {turned}: {needs}{room}{takes}."


def _stack_answer(found: Advice, training: "Training | None") -> Iterator[tuple[str, str]]:
    best, bare = found.recommended, found.baseline
    yield "turn on", best.title
    yield "command", found.command
    more = "" if found.largest_batch is None else f"; up to {found.largest_batch:,} sequences fit"
    if found.largest_batch == 1:
        more = "; no second sequence fits"
    yield "batch", f"{batch_words(best.batch)}, as the configuration has it (training.batch_size){more}"
    ratio = best.tokens_per_second / bare.tokens_per_second
    faster = f"{ratio:.1f} × the" if ratio >= _LARGE else f"{format_percent(ratio - 1)} against"
    less = format_percent(best.need_bytes / bare.need_bytes - 1)
    speeds = f"{_speed(found, best)} {found.speed_unit}, {faster} {format_count(bare.tokens_per_second)} without it"
    yield "speed" if found.device else "arithmetic", speeds
    fits = "" if bare.fits else ", which does not fit"
    yield "memory", f"{format_bytes(best.need_bytes)}, {less} against {format_bytes(bare.need_bytes)} without it{fits}"
    yield "budget", _budget(found, f" of {found.of}")
    if found.checked:
        yield "fits by", found.checked
    yield "loss", best.numerics.value
    if training is not None:
        yield "training", f"{trained_words(training)} {hours_words(training)}"
        if training.price is not None:
            yield "money", f"{money_words(training)}, at {training.price:g} for an hour"


def _budget(found: Advice, of: str = "") -> str:
    on = f" on {found.device}" if found.device else ""
    return f"{format_bytes(found.budget_bytes)}{of}{on}"


def _speed(found: Advice, one: "Choice") -> str:
    """Return the speed, and between which speeds it lies: a margin of the time is none of the speed."""
    speed = format_count(one.tokens_per_second)
    if one.spread is None or not found.device:
        return speed
    slowest, fastest = (format_count(one.tokens_per_second / factor) for factor in reversed(one.spread))
    return f"{speed} ({span(slowest, fastest)})"


def _loss(one: "Choice") -> str:
    return one.numerics.name.lower().replace("_", " ")


def _contributions(found: Advice) -> Iterator[tuple[str, str, str, str]]:
    """Yield what each element changes, by the recommended stack against the one without it."""
    best = found.recommended
    for part in found.parts:
        if part.without is None:
            yield part.element, "needed", "needed", part.loss
        else:
            time = format_percent(best.seconds / part.without.seconds - 1)
            yield part.element, time, format_percent(best.need_bytes / part.without.need_bytes - 1), part.loss


def _basis(found: Advice) -> str:
    """Return what the times rest on, how far to trust them, and how to get better ones."""
    counts = found.counts
    searched = f"{counts.candidates:,} compatible stacks were searched; {counts.replayed} whole ledgers decided."
    if found.absent:
        return f"{searched} Times are {PREDICTED}. Stacks that are close may be ordered wrongly."
    if not found.device:
        return (
            f"{searched} No device was named, so nothing was asked of this machine: stacks are ranked by arithmetic, "
            "and times are not known. --device names a GPU, and --calibrate 90 times front-runners here."
        )
    if not counts.timed:
        return (
            f"{searched} Times are a roofline, which is off by some 20 % in the median and may order stacks wrongly. "
            "Leave out --calibrate 0, or give more seconds, to time the front-runners."
        )
    state = "was timed" if found.recommended.timed else "was not timed itself"
    load = " Other programs worked meanwhile, so times may be too long." if counts.under_load else ""
    return (
        f"{searched} {_stacks(counts.timed)} timed here, and the recommended one {state}. Other times are "
        f"rooflines, corrected by those, with wider margins.{load}"
    )


def _stacks(count: int) -> str:
    return "One stack was" if count == 1 else f"{count} stacks were"


def _left_out(found: Advice) -> Iterator[str]:
    counts = found.counts
    if found.sources:
        yield f"Changes of the loss were measured on like runs: {'; '.join(found.sources)}."
    if counts.refused:
        refused = ", ".join(counts.refused)
        yield f"Left out, because no like measurement or published training keeps their loss: {refused}."
    if counts.unearned:
        yield (
            f"Left out, because they round the optimizer's state, are not needed to fit, and gain less time than its "
            f"margin: {', '.join(counts.unearned)}."
        )
    if counts.unadvised:
        yield f"Left out unless the configuration turns them on: {'; '.join(counts.unadvised)}."
    if counts.unseen:
        yield f"Left out, because their time is not predicted: {'; '.join(counts.unseen)}."
    if counts.idle:
        yield f"Not tried, because no prediction can tell their effect: {', '.join(counts.idle)}."
    if counts.measured:
        yield f"Measured, but not predicted: {'; '.join(counts.measured)} (docs/measured/gpu.md)."


def _verdict(found: Advice, measured: Measured) -> str:
    times = ", ".join(f"{title} {format_seconds(seconds)}" for title, seconds in measured.items())
    held = "held" if kept_order(found, measured) else "did not hold"
    fastest = min(measured, key=measured.__getitem__)
    return f"Verified by short runs: the order {held}, and {fastest} was the fastest. A step took: {times}."


_PLANNED = (
    "{0.candidates:,} layouts with their techniques were planned, and {0.refused:,} more were refused. All of this is "
    "predicted from datasheets, and nothing was measured. Plans leave out overlap, stragglers, the update and memory "
    "traffic; small models take longer. Memory of replicas is that of the ledger of a rank. That of other layouts is "
    "planned, and their buffers and gathered weights take gigabytes more. The errors of plans are in docs/numbers.md."
)
_REPLICATED = (
    "No plan covers this model, so tensor and pipeline groups were not searched. {0.candidates:,} kinds of data "
    "parallelism with their techniques were predicted, by the ledger of a rank, by kernels and by datasheets of links; "
    "nothing was measured. Buffers of NCCL take up to a gigabyte more."
)


class LayoutAdviceView(Shown[LayoutAdvice]):
    """Advice on a layout over several GPUs, as a reader is shown it: with a whole training."""

    def __init__(self, found: LayoutAdvice, training: "Training | None" = None) -> None:
        super().__init__(found)
        self.training = training

    def blocks(self) -> Iterator[Block]:
        """Yield the answer in a sentence, its figures, its tables of layouts, and its caveats."""
        found, training = self.found, self.training
        yield layout_sentence(found, training)
        yield Facts.of(_layout_answer(found, training))
        yield _table("layout", found.frontier)
        if found.runners_up:
            yield _table("next layout", found.runners_up)
        yield from (f"Caution: {one}." for one in found.warnings)
        yield _PLANNED.format(found) if found.planned else _REPLICATED.format(found)
        if found.sources:
            yield f"Changes of the loss were measured on like runs: {'; '.join(found.sources)}."
        if found.lossy:
            lossy = ", ".join(found.lossy)
            yield f"Left out, because no like measurement or published training keeps their loss: {lossy}."
        if found.unplanned:
            yield f"Left out, because no plan over several ranks has them: {', '.join(found.unplanned)}."

    def values(self) -> dict[str, Any]:
        """Return the figures of every layout for programs, with the training."""
        training = None if self.training is None else self.training.to_dict()
        return LayoutAdvice.to_dict(self.found) | {"training": training}

    def frame(self) -> "pandas.DataFrame":
        """Return a row per layout of the frontier: tokens/s, bytes, shares of waiting."""
        import pandas

        return pandas.json_normalize([one.to_dict() for one in self.found.frontier])


def layout_sentence(found: LayoutAdvice, training: "Training | None") -> str:
    """Return the sentence that a colleague would say first."""
    best, run = found.recommended, found.run
    batch = f"{run.sequences_per_step:,} sequences of {run.model.context_length:,} tokens"
    needs = f"{format_bytes(best.need_bytes)} on the fullest GPU, of {format_bytes(found.budget_bytes)}"
    takes = "" if training is None else f", and {training_words(training)}"
    return f"{found.configuration} fits {found.cluster} with {best.title}: {batch} need {needs}{takes}."


def _layout_answer(found: LayoutAdvice, training: "Training | None") -> Iterator[tuple[str, str]]:
    best, time = found.recommended, found.step_time
    yield "turn on", best.title
    yield "layout", f"{best.mesh}, on {found.cluster}"
    if found.planned:
        yield "plan it", found.command
    yield "train it", found.train_command or "no command of assay starts a run over several nodes"
    speed = f"{format_count(best.tokens_per_second)} tokens/s, {format_seconds(best.seconds)} a step"
    yield "at best, by the plan" if found.planned else "speed", f"{speed}, {best.mfu:.1%} MFU"
    low, high = (format_seconds(one * time.seconds) for one in time.spread or (1, 1))
    yield "step time", f"{low} to {high}, by {_basis_of_time(found)}"
    budget = format_bytes(found.budget_bytes)
    yield "memory", f"{format_bytes(best.need_bytes)} in use on {_fullest(best)}, of {budget}"
    waits = f"{best.communication_share:.1%} in collectives, {best.idle_share:.1%} idle in the pipeline"
    yield "waiting", f"{waits}, of a step without overlap"
    yield "loss", best.numerics.value
    if training is not None:
        yield "training", f"{trained_words(training)} {hours_words(training)}"
        yield "hours of one GPU", " to ".join(format_count(one) for one in training.device_hours)
        if training.price is not None:
            yield "money", f"{money_words(training)}, at {training.price:g} for an hour of one GPU"


def _basis_of_time(found: LayoutAdvice) -> str:
    if found.step_time.margin is None:
        return "the plan and its errors"
    if found.recommended.mesh.replicas:
        return "kernels of a rank, and its collectives"
    return "the host, which queues the launches of a rank for longer than the plan takes"


def _fullest(best: "Layout") -> str:
    if best.mesh.replicas:
        return "each rank, by its ledger"
    return "the fullest rank, by the plan and with CUDA's context"


def _table(heading: str, placed: "Iterable[Layout]") -> Table:
    rows = [
        (str(one.mesh), one.title, format_count(one.tokens_per_second), format_bytes(one.need_bytes)) for one in placed
    ]
    return Table.of((heading, "techniques", "tokens/s", "needs"), rows, ("tokens/s", "needs"))


_MIB = 2**20
