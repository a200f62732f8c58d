"""Texts of changes, losses and lists of rows, the same in all sections on the choice of a row."""

from collections.abc import Sequence

from assay.analysis.choose.criteria import LogChange, LossDifference, same_steps
from assay.analysis.comparison import Comparison
from assay.analysis.effects import Effect
from assay.report.formats import UNKNOWN
from assay.report.wording import interval
from assay.units import format_percent

_NAMED = 3
"""Most rows that a sentence names."""


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
    ends = "" if not one.interval or not one.half else f" [{', '.join(map(signed, one.interval))}]"
    return signed(one.nats) + ends


def signed(value: float) -> str:
    """Format a number with four decimals, a sign and a true minus; zero has no sign."""
    text = f"{value:+.4f}".replace("-", "−")
    return "0" if text[1:] == "0.0000" else text


def names(rows: Sequence[str], most: int = _NAMED) -> str:
    """Join the names of rows; those beyond `most` are counted, if they are several."""
    if len(rows) > most + 1:
        return f"{', '.join(rows[:most])} and {len(rows) - most} others"
    return " and ".join(filter(None, (", ".join(rows[:-1]), *rows[-1:])))


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


def plain(one: LogChange | None) -> dict[str, object] | None:
    """Return a change as plain values for JSON."""
    if one is None:
        return None
    return {"change": one.fraction, "interval": one.interval and list(one.interval), "distinguishable": bool(one.sign)}
