"""Texts of changes, losses, rows and estimates, the same in all sections of a study's answer."""

from collections.abc import Sequence

from assay.analysis.choose.criteria import LogChange, LossDifference, same_steps
from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect
from assay.analysis.factors.changes import ChangeEstimate
from assay.analysis.metrics import metrics
from assay.report.blocks import UNKNOWN
from assay.report.comparison.wording import interval
from assay.units import format_percent

_NAMED = 3
"""Most rows that a sentence names."""
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


def names(rows: Sequence[str], most: int = _NAMED) -> str:
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
    known = metrics()
    losses = [title(name) for name, one in bounded if not one and known[name].kind == "loss"]
    timed = [title(name) for name, one in bounded if not one and known[name].kind == "timed"]
    return [
        *([f"No intervals of {', '.join(losses)}: they need three seeds that have all rows."] if losses else []),
        *([f"No intervals of {', '.join(timed)}: give more seeds or repeats."] if timed else []),
    ]
