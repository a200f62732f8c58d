"""Names of rows by their changes, and texts of estimates on both scales."""

from collections.abc import Iterable, Sequence

from assay.analysis.factors.changes import ChangeEstimate
from assay.analysis.factors.layout import Change, level_name
from assay.analysis.metrics import metrics
from assay.report.wording import interval
from assay.units import format_percent


def title(metric: str) -> str:
    """Return the heading of a metric."""
    return metrics()[metric].title


def is_exact(metric: str) -> bool:
    """Return True if a metric repeats exactly."""
    return metrics()[metric].kind == "exact"


def row_name(changes: Iterable[Change], row: str) -> str:
    """Return the name of a row with several changes, or its label if it is one stack."""
    levels = [level_name(*one) for one in changes]
    return " + ".join(levels) if len(levels) > 1 else row


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
        *([f"No intervals of {', '.join(timed)}: give more seeds or processes."] if timed else []),
    ]
