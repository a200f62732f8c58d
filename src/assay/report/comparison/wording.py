"""Texts of figures of rows, changes, losses and estimates, the same for the terminal and for the page.

Each metric of a row becomes a few short texts: the value, its change, the interval or a remark in its place, and the
prediction. A change that cannot be distinguished from none is marked so.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from assay.analysis.choose.criteria import LogChange, LossDifference, same_steps
from assay.analysis.comparison import Comparison
from assay.analysis.effects import LEAST_SEEDS, Effect, Verdict
from assay.analysis.factors.changes import ChangeEstimate
from assay.analysis.metrics import Metric, metrics
from assay.analysis.metrics.gradients import PROBED
from assay.analysis.metrics.standard import (
    STEP_SECONDS,
    TENSORS_PEAK_BYTES,
    TOKENS_PER_SECOND,
    VAL_LOSS,
    loss_of,
    rate_of,
)
from assay.analysis.row import BreakEven, Figure, Row
from assay.config.run import ResolvedRun
from assay.records.evidence import ValueProof
from assay.records.run import Proof
from assay.records.status import Status
from assay.records.timing import HOST_BOUND
from assay.report.kit.blocks import UNKNOWN, quantity
from assay.units import format_bytes, format_percent, format_seconds, format_steps

Tone = Literal["better", "worse", "neutral"]

_FAULTY_PART = 4
"""One step in so many of a run's middle is faulty, in the sentence on what a proof may miss."""


def columns(run: ResolvedRun) -> list[Metric]:
    """Return the metrics that are columns of the table and of the page of such a run, in their order."""
    own = {VAL_LOSS.name: loss_of(run), TOKENS_PER_SECOND.name: rate_of(run)}
    probed = PROBED if run.training.gradient_probe else frozenset()
    return [own.get(name, metric) for name, metric in metrics().items() if metric.shown or name in probed]


def unit_of_loss(run: ResolvedRun) -> str:
    """Return the label of an axis of losses."""
    return "nats per token" if run.own_rows is None else "loss, as you define it"


class Texts(NamedTuple):
    """Texts of one metric of a row. Every text may be empty."""

    value: str
    change: str
    interval: str
    remark: str
    """`not distinguishable`, `bit-equal`, or the reason why there is no interval."""
    predicted: str
    basis: str
    """`traced` for the prediction of a trace; empty for all others."""
    tone: Tone


def texts(row: Row, metric: Metric) -> Texts:
    """Return the texts of one metric of a row."""
    effect = row.effects.get(metric.name)
    verdict = row.verdicts.get(metric.name)
    predicted = _predicted(row, metric)
    return Texts(
        value=figure(metric, row.metrics.get(metric.name)),
        change=format_percent(effect.change) if effect else "",
        interval=interval(effect.interval) if effect else "",
        remark=_remark(metric, effect, verdict),
        predicted=predicted,
        basis="traced" if predicted and row.predicted and row.predicted.traced else "",
        tone=_tone(metric, effect, verdict),
    )


def _predicted(row: Row, metric: Metric) -> str:
    """Predicted figure, if there is a measured one, and its change against the baseline's."""
    measured, change = row.metrics.get(metric.name), row.predicted_change.get(metric.name)
    known = metric.predicted and measured is not None
    value = getattr(row.predicted, metric.name, None) if known else None
    return " ".join(filter(None, (figure(metric, value), "" if change is None else format_percent(change))))


def figure(metric: Metric, value: Figure) -> str:
    """Format a metric's value with its unit; losses by seed, or their mean from three seeds on."""
    if isinstance(value, tuple):
        values = value if len(value) < LEAST_SEEDS else (fmean(value),)
        return " ".join(quantity(one, metric.unit) for one in values)
    return "" if value is None else quantity(value, metric.unit)


def interval(ends: tuple[float, float] | None) -> str:
    """Format an interval of fractions in percent, such as ``"[−12.9, −11.2]"``; empty if there is none."""
    if ends is None:
        return ""
    low, high = (format_percent(end).removesuffix(" %") for end in ends)
    return f"[{low}, {high}]"


def status(row: Row) -> str:
    """Return a text such as ``"out of memory, 1 of 2 runs finished: …"``; empty if the row is done."""
    if row.status is Status.DONE:
        return ""
    part = 0 < row.finished < row.planned
    return ending(row.status, row.reason, f", {row.finished} of {row.planned} runs finished" if part else "")


def ending(status: Status, reason: str | None, progress: str = "") -> str:
    """Return a status in words and its reason, which is not preceded by the words with which it begins."""
    words = status.value.replace("_", " ") + progress
    if status is Status.DONE or not reason:
        return words
    return reason if reason.startswith(words) else f"{words}: {reason}"


def value_check(proof: ValueProof, rule: str = "the optimizer's rule") -> str:
    """Return one line on the value check: the largest errors, the number of updates, and the cost of the check.

    `rule` is what updates were compared with.
    """
    if not proof.checked:
        return f"NOT PROVEN: {proof.broken or proof.unchecked}"
    if not proof.verdict:
        return "WRONG: " + "; ".join(proof.failures)
    errors = ", ".join(
        f"{what} {error:.1g}" if error else f"{what} equal"
        for what, error in (("loss", proof.loss_error), ("gradients", proof.gradient_error))
        if error is not None
    )
    cost = "" if proof.baseline_steps is None else f"; the check cost {proof.baseline_steps:.0f} baseline steps"
    if cost and proof.process_seconds is not None:
        cost += f", {format_seconds(proof.process_seconds)} including its process"
    updates = f", {proof.updates} updates match {rule}" if proof.updates else ""
    again = proof.all_evaluations > proof.evaluations > 0
    evaluated = f", {proof.evaluations} of {proof.all_evaluations} evaluations repeated" if again else ""
    compared = f"right in {format_steps(proof.steps)} (relative errors: {errors}){_middle(proof)}"
    reduced = ", bounds allow for sums of products in 16 bits (cuBLAS)" if proof.reduced_reductions else ""
    return f"{compared}{updates}{evaluated}{_masks(proof)}{reduced}{cost}"


def _masks(proof: ValueProof) -> str:
    """Return what is special about the dropout masks of a run."""
    said = ", gradients compared without dropout" if proof.without_dropout else ""
    if proof.half_repeated_masks:
        said += f", {proof.half_repeated_masks} dropout masks repeat half of the mask before, as torch draws small ones"
    return said


def _middle(proof: ValueProof) -> str:
    """Return how many steps of a run's middle are among those that were compared, and what that leaves unseen."""
    if not proof.middle_steps:
        return ""
    since = f" since step {proof.since}" if proof.since else ""
    if not proof.replayed:
        return f", none of them in its middle of {proof.middle_steps}{since}"
    faulty = max(1, proof.middle_steps // _FAULTY_PART)
    missed = f"a fault in {faulty} of these would be missed in {100 * proof.chance_of_missing(faulty):.0f} % of runs"
    return f", {proof.replayed} of them drawn from the {proof.middle_steps} of its middle{since} ({missed})"


def not_proven(row: Row) -> str:
    """Return what of a row with optimizations was not proven; empty if all of it was."""
    known = Proof(evidence=row.evidence, values=row.values, proven_until=row.proven_until)
    return known.lacks if row.status is Status.DONE else ""


def prediction_error(row: Row) -> float | None:
    """Error of the predicted peak of tensors, as a fraction of the measured one; None if either is missing."""
    measured = row.metrics.get(TENSORS_PEAK_BYTES.name)
    predicted = row.predicted.tensors_peak_bytes if row.predicted else None
    if not isinstance(measured, int) or not measured or predicted is None:
        return None
    return predicted / measured - 1


def fine_percent(fraction: float) -> str:
    """Format a fraction in percent with two decimals, for errors below one percent."""
    text = f"{100 * fraction:+.2f} %".replace("-", "−")
    return "0.00 %" if text[1:] == "0.00 %" else text


def _remark(metric: Metric, effect: Effect | None, verdict: Verdict | None) -> str:
    if effect is None or verdict is None:
        return ""
    if verdict is Verdict.EQUAL:
        return "bit-equal" if metric.kind == "loss" else "exactly equal"
    if verdict is Verdict.NOT_DISTINGUISHABLE:
        return verdict.value
    if verdict is Verdict.UNTOLD:
        return f"{verdict.value}: {effect.untold}"
    if metric.kind == "exact":
        return "range of runs" if effect.interval else "exact"
    if effect.interval:
        return "" if format_percent(effect.change) != format_percent(0.0) else "a difference below 0.05 %"
    return "too few seeds" if metric.kind == "loss" else "too few runs"


def _tone(metric: Metric, effect: Effect | None, verdict: Verdict | None) -> Tone:
    if effect is None or verdict is None or not verdict.distinguishable:
        return "neutral"
    return "better" if (effect.change < 0) == (metric.better == "lower") else "worse"


def first_step(row: Row) -> list[str]:
    """Return a sentence on the cost of a longer first step and when it is earned back, if the row has one."""
    if row.break_even is None:
        return []
    return [
        f"{format_seconds(row.break_even.price_seconds)} longer than the baseline's, {_earned(row.break_even, row)}"
    ]


def _earned(found: BreakEven, row: Row) -> str:
    """Return when a longer first step is earned back, or why nobody can tell."""
    if found.steps is None or found.interval is None or found.saved_seconds is None:
        effect = row.effects.get(STEP_SECONDS.name)
        slower = effect is not None and effect.interval is not None and effect.interval[0] > 0
        return "never earned back: steps are slower" if slower else "not known to be earned back: no saving can be told"
    low, high = found.interval
    within = "" if found.steps <= found.run_steps else f", which is not within this run of {found.run_steps:,}"
    saved = f"at {format_seconds(found.saved_seconds)} a step"
    return f"earned back after {found.steps:,} steps ({low:,} to {high:,}) {saved}{within}"


def waits_for(share: float | None) -> list[str]:
    """Return whether steps wait for the host or the device, by the share of their time in which they are queued."""
    bound = "host" if share is not None and share > HOST_BOUND else "device"
    return [] if share is None else [f"waits for the {bound} (the host queues it in {share:.0%} of its time)"]


def by_rank(row: Row) -> list[str]:
    """Return sentences on memory, payload and communication of the ranks, in their order, with the predictions."""
    if not row.ranks:
        return []
    predicted = row.predicted.ranks if row.predicted else ()
    said = [
        "tensors "
        + _each([one.tensors_peak_bytes for one in row.ranks], [one.tensors_peak_bytes for one in predicted]),
        "payload " + _each([one.sent_bytes for one in row.ranks], [one.sent_bytes for one in predicted]),
    ]
    shares = [one.communication_share for one in row.ranks]
    if all(share is not None for share in shares):
        said.append(
            "share of a step in communication " + ", ".join(f"{share:.0%}" for share in shares if share is not None)
        )
    return said + _idle(row)


def _idle(row: Row) -> list[str]:
    """Return a sentence on the idle shares of a pipeline's ranks, with the simulated ones and those of equal stages."""
    idle = [one.idle for one in row.ranks if one.idle]
    if len(idle) < len(row.ranks):
        return []
    said = "idle in the pipeline " + ", ".join(f"{one.share:.1%}" for one in idle)
    if row.predicted and row.predicted.bubble_share is not None:
        played = ", ".join(f"{one.idle_share:.1%}" for one in row.predicted.ranks if one.idle_share is not None)
        said += f" (simulated {played}; equal stages {row.predicted.bubble_share:.1%})"
    caveats = dict.fromkeys(one.caveat for one in idle if one.caveat)
    return [", ".join([said, *caveats])]


def _each(measured: Sequence[int | None], predicted: Sequence[int]) -> str:
    text = ", ".join("–" if value is None else format_bytes(value) for value in measured)
    return f"{text} (predicted {', '.join(map(format_bytes, predicted))})" if predicted else text


_FEW, _FEW_WORDS = 2, 14
"""Most rows that a sentence of the answer names, and most words of their names, one row always."""


def change(one: LogChange | None) -> str:
    """Format a change with its interval, such as ``"−14.5 % [−23.7, −4.3]"``; a dash if it is missing."""
    if one is None:
        return UNKNOWN
    return " ".join(filter(None, (format_percent(one.fraction), interval(one.interval))))


def in_nats(comparison: Comparison) -> str:
    """Return `` nats``, the unit of losses; a user's own loss has one that is not known."""
    return " nats" if comparison.run.own_rows is None else ""


def nats(one: LossDifference | None) -> str:
    """Format a difference of losses with its interval; a dash if it is missing."""
    if one is None:
        return UNKNOWN
    ends = "" if not one.interval or not one.half else f" [{', '.join(map(signed_number, one.interval))}]"
    return signed_number(one.nats) + ends


def signed_number(value: float) -> str:
    """Format a number with four decimals, a sign and a true minus; zero has no sign."""
    text = f"{value:+.4f}".replace("-", "−")
    return "0" if text[1:] == "0.0000" else text


def names(rows: Sequence[str], most: int = 3) -> str:
    """Join the names of rows; those beyond `most` are counted, if they are several. Names with commas are quoted."""
    rows = [f"“{one}”" if ", " in one and len(rows) > 1 else one for one in rows]
    if len(rows) > most + 1:
        return f"{', '.join(rows[:most])} and {len(rows) - most} others"
    return " and ".join(filter(None, (", ".join(rows[:-1]), *rows[-1:])))


def few(rows: Sequence[str]) -> str:
    """Join as many names of rows as a sentence of the answer holds; the others are counted."""
    said = names(rows, _FEW)
    if len(rows) < 2 or len(said.split()) <= _FEW_WORDS:
        return said
    return f"{rows[0]} and {'another' if len(rows) == 2 else f'{len(rows) - 1} others'}"


def two_digits(value: float) -> str:
    """Format a number with two digits and no power of ten, such as ``"0.14"`` or ``"120"``."""
    return f"{float(f'{value:.2g}'):g}"


def time_title(comparison: Comparison) -> str:
    """Return the name of the time by which rows are compared."""
    return "step time" if same_steps(comparison) else "training time"


def target_ratio(ratio: Effect) -> str:
    """Format the change of a time to the target, with its interval."""
    if ratio.equal:
        return "exactly equal"
    ends = ratio.interval
    remark = "not distinguishable" if ends is not None and ends[0] <= 0 <= ends[1] else ""
    return " ".join(filter(None, (format_percent(ratio.change), interval(ends), remark)))


def whole_percent(fraction: float) -> str:
    """Format a change in whole percent, with a sign and a true minus; zero has no sign."""
    text = f"{100 * fraction:+.0f} %".replace("-", "−")
    return "0 %" if text[1:] == "0 %" else text


def plain(one: LogChange | None) -> dict[str, object] | None:
    """Return a change as plain values for JSON."""
    if one is None:
        return None
    return {"change": one.fraction, "interval": one.interval and list(one.interval), "distinguishable": bool(one.sign)}


def title(metric: str) -> str:
    """Return the heading of a metric."""
    return metrics()[metric].title


def is_exact(metric: str) -> bool:
    """Return True if a metric repeats exactly."""
    return metrics()[metric].kind == "exact"


def points(fraction: float) -> str:
    """Format a fraction as percentage points, such as ``"−12.3"``."""
    return format_percent(fraction).removesuffix(" %")


def as_ratio(one: ChangeEstimate) -> str:
    """Format an estimate in percent with its interval, such as ``"−12.3 % [−12.9, −11.2]"``."""
    return " ".join(filter(None, (format_percent(one.value), interval(one.interval))))


def in_points(one: ChangeEstimate) -> str:
    """Format an estimate in percentage points with its interval, such as ``"−12.3 [−12.9, −11.2]"``."""
    return " ".join(filter(None, (points(one.value), interval(one.interval))))


def too_few(bounded: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a sentence on the metrics that vary by chance and have no intervals; `bounded` is by metric."""
    losses = [title(name) for name, one in bounded if not one and metrics()[name].kind == "loss"]
    timed = [title(name) for name, one in bounded if not one and metrics()[name].kind == "timed"]
    return [
        *([f"No intervals of {', '.join(losses)}: they need three seeds that have all rows."] if losses else []),
        *([f"No intervals of {', '.join(timed)}: give more seeds or repeats."] if timed else []),
    ]
