"""Names of changes, and texts of estimates on both scales."""

from collections.abc import Iterable, Sequence

from assay.analysis.factors.changes import Estimate
from assay.analysis.factors.layout import Change
from assay.analysis.metrics import metrics
from assay.report.wording import interval
from assay.studies.factors import OPTIMIZATIONS, PLACEBO
from assay.units import format_percent

_ON = "on"
"""Level of a rung that is turned on; its name alone says so."""


def level_name(key: str, level: str) -> str:
    """Return a level with the last part of its factor's key; optimizations, placebos and rungs need no key."""
    if key == OPTIMIZATIONS or level.startswith(f"{PLACEBO}: "):
        return level
    return key if level == _ON else f"{key.rsplit('.', 1)[-1]}={level}"


def effect_name(changes: Iterable[Change]) -> str:
    """Return the name of a main effect or an interaction, such as ``"lion × n_layer=8"``."""
    return " × ".join(level_name(*one) for one in changes)


def title(metric: str) -> str:
    """Return the heading of a metric."""
    return metrics()[metric].title


def points(fraction: float) -> str:
    """Format a fraction as percentage points, such as ``"−12.3"``."""
    return format_percent(fraction).removesuffix(" %")


def texts(ratio: Estimate, added: Estimate) -> tuple[str, str, str, str]:
    """Return the ratio, its interval, the points and their interval as texts."""
    return format_percent(ratio.value), interval(ratio.interval), points(added.value), interval(added.interval)


def too_few(bounded: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a sentence on the metrics that vary by chance and have no intervals; `bounded` is by metric."""
    known = metrics()
    losses = [title(name) for name, one in bounded if not one and known[name].kind == "loss"]
    timed = [title(name) for name, one in bounded if not one and known[name].kind == "timed"]
    return [
        *([f"No intervals of {', '.join(losses)}: they need three seeds that have all rows."] if losses else []),
        *([f"No intervals of {', '.join(timed)}: give more seeds or processes."] if timed else []),
    ]
