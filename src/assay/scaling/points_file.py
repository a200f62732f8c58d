"""A CSV file of points: columns of numbers, the heading of each quantity by any of several names, and its unit.

Names are compared in lower case. A file that a spreadsheet wrote may begin with a byte order mark. Empty lines do not
count as rows, and errors name the line of the file.

A heading is known by its name, and may have a unit in parentheses: ``Params (M)``, ``FLOPs (1e18)``, ``loss (bits)``.
A count without one may have a suffix itself: ``44M``.
Other headings are named, as in ``n=params_total,d=tokens_trained,loss=val_bpb:bits``. Losses become nats. Bits per
byte become nats per byte, and a law that is fitted to them is in these.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from assay.config.loading import read_bytes
from assay.errors import UsageError, among, short_text
from assay.units import parse_count

_MOST_BYTES = 1 << 26
_MOST_LINES, _LONGEST_LINE = 200_000, 100_000
"""A row takes half a kilobyte of memory, and a field a tenth of that."""
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""Separators that spreadsheets write in place of commas."""


@dataclass(frozen=True)
class PointsTable:
    """Rows of a file, each with the number of its line."""

    path: Path
    rows: list[dict[str, str]]
    lines: list[int]

    def headings(self, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return the heading of each kind of column that the file has, from the names by which it is known.

        Raises `UsageError` if several columns are of one kind.
        """
        found = {kind: self._heading(known) for kind, known in names.items()}
        return {kind: name for kind, name in found.items() if name is not None}

    def _heading(self, names: Sequence[str]) -> str | None:
        found = [one for one in self.rows[0] if one is not None and one.strip().lower() in names]
        if len(found) > 1:
            raise UsageError(
                f"{self.path} has the columns {' and '.join(found)} for one quantity; leave one of them out"
            )
        return found[0] if found else None

    def numbers(self, name: str, least: float, most: float, convert: Callable[[str], float] = float) -> list[float]:
        """Return a column as numbers. A conversion raises `ValueError` for a text that is none.

        Raises `UsageError` for a field that is no number, or whose number is not within the limits.
        """
        return [
            _number_in(row[name], name, f"{self.path}, line {line}", (least, most), convert)
            for row, line in zip(self.rows, self.lines, strict=True)
        ]


def read_table(path: Path, content: str) -> PointsTable:
    """Return the rows of a file; `content` says in an error what it should have.

    Raises `UsageError` if it cannot be read, has no rows, has two columns of one name, or has a row with more fields
    than names.
    """
    reader = csv.DictReader(_lines(_text(path, content), path))
    rows, lines = [], []
    try:
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV file ({error}); name one of {content}") from error
    if not rows:
        raise UsageError(f"{path} has no {content}; its first line names the columns, and each further line is a row")
    _check_names(reader.fieldnames or (), path)
    for row, line in zip(rows, lines, strict=True):
        if None in row:
            raise UsageError(f"{path}, line {line} has more fields than the first line has names")
    return PointsTable(path, rows, lines)


def _text(path: Path, content: str) -> str:
    try:
        raw = read_bytes(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a CSV file of {content}") from error
    if raw is None:
        raise UsageError(f"{path} is longer than 64 MiB; name a CSV file of {content}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}; save it as CSV in UTF-8") from error


def _lines(text: str, path: Path) -> Iterator[str]:
    """Yield the lines of a text. Raises `UsageError` if there are more, or longer ones, than a table may have."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if number > _MOST_LINES or len(line) > _LONGEST_LINE:
            raise UsageError(
                f"{path} has more than {_MOST_LINES:,} lines, or a line of more than {_LONGEST_LINE:,} characters; "
                "give fewer points"
            )
        yield line


def _check_names(names: Sequence[str], path: Path) -> None:
    """Raise `UsageError` for a heading that is not separated by commas, and for a name that it has twice."""
    for separator, word in _SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise UsageError(f"{path} separates its columns by {word}; save it as CSV with commas")
    cleaned = [name.strip().lower() for name in names]
    twice = next((name for name in cleaned if name and cleaned.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{path} has the column {short_text(twice)} twice; leave one of them out")


def _number_in(
    text: str | None, name: str, place: str, limits: tuple[float, float], convert: Callable[[str], float]
) -> float:
    if not (text or "").strip():
        raise UsageError(f"{place}: the column {name} is empty; fill it, or leave the row of that run out")
    try:
        value = convert(text or "")
    except ValueError:
        raise UsageError(
            f"{place}: the column {name} has {short_text(text or '')}; write a number such as 1e7"
        ) from None
    least, most = limits
    if not least <= value <= most:
        raise UsageError(
            f"{place}: {name}={value:g} is not possible; write the plain number, from {least:g} to {most:g}"
        )
    return value


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
    factor = _COUNTS.get(name) or _named_number(name)
    if factor is None:
        raise UsageError(f"the column {heading} has the unit {unit!r}; write a factor such as M, B or 1e18")
    return lambda text: float(text) * factor


def _count(text: str) -> float:
    """Return a count that may have a suffix, ``44M``, or separated thousands, ``44,000,000``."""
    plain = text.strip()
    if "," in plain and not _IN_THOUSANDS.fullmatch(plain):
        raise ValueError(text)
    return parse_count(plain)


def _named_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
