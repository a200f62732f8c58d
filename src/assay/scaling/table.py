"""Columns of numbers in a CSV file whose first line names them, each by any of several names.

Names are compared in lower case. A file that a spreadsheet wrote may begin with a byte order mark.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.config.reading import read_text
from assay.errors import UsageError, shown

Rows = list[dict[str, str]]


def read_rows(path: Path, content: str) -> Rows:
    """Return the rows of a file; `content` says in an error what it should have.

    Raises `UsageError` if it cannot be read, has no rows, or has a row with more fields than names.
    """
    try:
        rows = list(csv.DictReader(read_text(path).removeprefix("\ufeff").splitlines()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a CSV file of {content}") from error
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV file ({error}); name one of {content}") from error
    if not rows:
        raise UsageError(f"{path} has no {content}; its first line names the columns, and each further line is a row")
    for line, row in enumerate(rows, start=2):
        if None in row:
            raise UsageError(f"{path}, line {line} has more fields than the first line has names")
    return rows


def column_of(rows: Rows, names: Sequence[str], path: Path) -> str | None:
    """Return the heading of a column that has one of the names, in lower case; None if there is none.

    Raises `UsageError` if several columns have one.
    """
    found = [one for one in rows[0] if one is not None and one.strip().lower() in names]
    if len(found) > 1:
        raise UsageError(f"{path} has the columns {' and '.join(found)} for one quantity; leave one of them out")
    return found[0] if found else None


def numbers_of(rows: Rows, name: str, path: Path, least: float, most: float) -> list[float]:
    """Return a column as numbers. Raises `UsageError` for a field that is no number, or not within the limits."""
    return [_number(row[name], name, f"{path}, line {line}", least, most) for line, row in enumerate(rows, start=2)]


def _number(text: str | None, name: str, place: str, least: float, most: float) -> float:
    if not (text or "").strip():
        raise UsageError(f"{place}: the column {name} is empty")
    try:
        value = float(text or "")
    except ValueError:
        raise UsageError(f"{place}: the column {name} has {shown(text or '')}; write a number such as 1e7") from None
    if not least <= value <= most:
        raise UsageError(f"{place}: {name}={value:g} is not possible; give a number from {least:g} to {most:g}")
    return value


def named_columns(rows: Rows, names: Mapping[str, Sequence[str]], path: Path) -> dict[str, str]:
    """Return the heading of each kind of column that the file has. Raises `UsageError` as `column_of`."""
    found = {kind: column_of(rows, known, path) for kind, known in names.items()}
    return {kind: name for kind, name in found.items() if name is not None}
