"""Columns of a file of points: the heading of each quantity, and its unit.

A heading is known by its name, and may have a unit in parentheses: ``Params (M)``, ``FLOPs (1e18)``, ``loss (bits)``.
A count without one may have a suffix itself: ``44M``.
Other headings are named, as in ``n=params_total,d=tokens_trained,loss=val_bpb:bits``. Losses become nats. Bits per
byte become nats per byte, and a law that is fitted to them is in these.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from assay.errors import UsageError, among
from assay.scaling.points_table import PointsTable
from assay.units import parse_count

NAMES: Mapping[str, tuple[str, ...]] = {
    "parameters": (
        *("parameters", "params", "n", "model size", "model_size"),
        *("n_params", "num_params", "params_total", "total_params", "parameter count", "model/params"),
    ),
    "tokens": (
        *("tokens", "d", "training tokens", "training_tokens"),
        *("tokens_trained", "train_tokens", "total_tokens", "tokens_seen", "train/tokens"),
    ),
    "counted_flops": (
        *("flops", "c", "training flop", "training_flop", "training flops", "compute"),
        *("training_flops", "total_flops", "flops_budget", "train/flops"),
    ),
    "loss": (
        *("loss", "l", "val_loss", "validation loss"),
        *("val loss", "validation_loss", "eval_loss", "final_loss", "val/loss", "eval/loss", "validation/loss"),
    ),
    "min_flops": ("min_flops", "c_min", "minimum flops"),
    "min_steps": ("min_steps", "s_min", "minimum steps"),
    "unique_tokens": ("unique_tokens", "u", "u_d", "unique tokens"),
}
"""Headings by which a column is known, in lower case."""
_LOSSES: Mapping[str, tuple[str, ...]] = {
    "bits": ("bits", "val_bits", "val_bpb", "bpb", "bits per byte", "bits_per_byte", "val/bpb", "val bpb"),
    "perplexity": ("perplexity", "ppl", "val_ppl", "val_perplexity", "validation perplexity", "val/perplexity"),
}
"""Headings of losses in other units, by unit; they count where a file has no loss in nats."""
_BY_BYTE = ("bpb", "per byte", "per_byte", "/byte")
"""Parts of a heading or a unit that say that a loss is per byte."""
_SHORT = {"n": "parameters", "d": "tokens", "c": "counted_flops", "flops": "counted_flops", "l": "loss"}
_SHORT |= {"c_min": "min_flops", "s_min": "min_steps", "u": "unique_tokens"}
_COUNTS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "thousands": 1e3, "millions": 1e6, "billions": 1e9}
_IN_UNIT = re.compile(r"(.*?)\s*[(\[]\s*([^()\[\]]+?)\s*[)\]]")

_IN_THOUSANDS = re.compile(r"\d{1,3}(,\d{3}){2,}")
"""Counts with separated thousands; with one comma it may be the decimal one."""

Convert = Callable[[str], float]
"""Conversion of a field; it raises `ValueError` for one that is no number."""


class Column(NamedTuple):
    """Heading of a quantity in a file, and the conversion of its numbers to plain counts or nats."""

    heading: str
    convert: Convert
    unit: str = ""
    """The unit as the file or the user names it."""

    @property
    def by_byte(self) -> bool:
        """True if it is a loss for each byte of text, and not for each token."""
        return any(word in f"{self.heading} {self.unit}".lower() for word in _BY_BYTE)


def columns_of(table: PointsTable, named: str | None = None) -> dict[str, Column]:
    """Return the column of each quantity that a file has; `named` says further ones, as ``n=HEADING:UNIT,…``.

    Raises `UsageError` for a quantity, heading or unit that there is not, and for two columns of one quantity.
    """
    given = _named(table, named or "")
    asked = {kind: _known(table, kind, known) for kind, known in NAMES.items() if kind not in given}
    found = {kind: column for kind, column in asked.items() if column is not None}
    if "loss" not in {**given, **found}:
        for unit, known in _LOSSES.items():
            if "loss" not in found and (column := _known(table, "loss", known)):
                found["loss"] = Column(column.heading, _converting("loss", unit, column.heading), unit)
    return {**found, **given}


def lacking(table: PointsTable, what: str) -> UsageError:
    """Return an error on what a file lacks, with the columns that it has."""
    there = ", ".join(one for one in table.rows[0] if one is not None)
    return UsageError(
        f"{table.path} needs {what}; it has the columns {there}; name them with --columns n=…,d=…,loss=…:bits"
    )


def _named(table: PointsTable, text: str) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        short, equals, rest = (one.strip() for one in part.partition("="))
        kind = _SHORT.get(short.lower(), short.lower())
        if not equals or kind not in NAMES:
            known = ", ".join(_SHORT)
            raise UsageError(f"--columns {part} names no quantity; write one of {known}, = and a heading")
        heading, colon, unit = rest.rpartition(":") if rest not in table.rows[0] else (rest, "", "")
        heading, unit = (heading, unit.strip()) if colon else (rest, "")
        if heading not in table.rows[0]:
            raise UsageError(f"{table.path} has no column {heading!r}{among(heading, filter(None, table.rows[0]))}")
        unit = unit or _unit_of(kind, heading)
        found[kind] = Column(heading, _converting(kind, unit, heading), unit)
    return found


def _unit_of(kind: str, heading: str) -> str:
    """Return the unit that a heading tells: of a known loss, or in parentheses; empty if it tells none."""
    for unit, known in _LOSSES.items() if kind == "loss" else ():
        if heading.strip().lower() in known:
            return unit
    matched = _IN_UNIT.fullmatch(heading.strip())
    if matched is None:
        return ""
    try:
        _converting(kind, matched[2], heading)
    except UsageError:
        return ""
    return matched[2]


def _known(table: PointsTable, kind: str, known: tuple[str, ...]) -> Column | None:
    headings = [one for one in table.rows[0] if one is not None]
    plain = [one for one in headings if one.strip().lower() in known]
    matched = ((one, _IN_UNIT.fullmatch(one.strip())) for one in headings)
    united = [(one, found[2]) for one, found in matched if found is not None and found[1].lower() in known]
    matching = plain or [one for one, _ in united]
    if len(matching) > 1:
        both = " and ".join(matching)
        raise UsageError(f"{table.path} has the columns {both} for one quantity; name one of them by --columns")
    if not matching:
        return None
    unit = "" if plain else united[0][1]
    return Column(matching[0], _converting(kind, unit, matching[0]), unit)


def _converting(kind: str, unit: str, heading: str) -> Convert:
    """Return the conversion from a unit. Raises `UsageError` for a unit that the quantity does not have."""
    name = unit.strip().lower()
    if kind == "loss":
        if name in ("", "nats"):
            return float
        if name in ("bits", "bpb", "bits per byte", "bits/byte"):
            return lambda text: float(text) * math.log(2)
        if name in ("perplexity", "ppl"):
            return lambda text: math.log(float(text)) if float(text) > 0 else math.nan
        raise UsageError(f"the loss {heading} has the unit {unit!r}; there are nats, bits and perplexity")
    if not name:
        return _count
    factor = _COUNTS.get(name) or _number(name)
    if factor is None:
        raise UsageError(f"the column {heading} has the unit {unit!r}; write a factor such as M, B or 1e18")
    return lambda text: float(text) * factor


def _count(text: str) -> float:
    """Return a count that may have a suffix, ``44M``, or separated thousands, ``44,000,000``."""
    plain = text.strip()
    if "," in plain and not _IN_THOUSANDS.fullmatch(plain):
        raise ValueError(text)
    return parse_count(plain)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
