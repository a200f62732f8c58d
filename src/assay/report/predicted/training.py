"""Words on a training at the pace of a predicted step: hours and money, from and to."""

from assay.estimator.cost import Training
from assay.units import format_count

_UNITS = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0}
"""Seconds of a unit; each is used from two of it on."""


def span(low: str, high: str) -> str:
    """Return ``"3 to 5"``, or one text if both are equal."""
    return low if low == high else f"{low} to {high}"


def hours_words(found: Training) -> str:
    """Return the time from and to, such as ``"15 to 35 hours"``; without a known error it is a bound."""
    low, high = (one * 3600 for one in found.hours)
    unit, size = next(((name, size) for name, size in _UNITS.items() if high >= 2 * size), ("seconds", 1.0))
    return f"{_between(low / size, high / size, bound=found.spread is None)} {unit}"


def money_words(found: Training) -> str:
    """Return the money from and to; empty without a price."""
    return "" if found.money is None else _between(*found.money, bound=found.spread is None)


def training_words(found: Training) -> str:
    """Return the sentence on a training, without its stop."""
    cost = f" and cost {money_words(found)}" if found.money is not None else ""
    return f"{format_count(found.tokens)} tokens take {hours_words(found)}{cost}"


def _between(low: float, high: float, *, bound: bool) -> str:
    words = span(_short(low), _short(high))
    return f"at least {words}" if bound else words


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
