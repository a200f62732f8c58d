"""The table of a published study as data, with the changes that its text prints and what was wrong with it.

A study may have one. Its answer then shows the published figures beside those that were measured. Changes are compared,
not figures, because the machine, the framework and often the model differ.
"""

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from assay.config.base import Frozen
from assay.errors import among, short_text


class _Part(Frozen):
    model_config = ConfigDict(use_attribute_docstrings=True, strict=False)


class PublishedColumn(_Part):
    """One column of a published table."""

    name: str
    """Heading in the document, with its unit."""
    metric: str | None = None
    """Metric of ours whose change is compared; None if there is none of the same meaning."""
    seen: Literal["tokens", "documents", "minutes"] | None = None
    """Unit, if the column counts the text that a row has seen or the time it has trained; ladders show it."""
    digits: int = Field(default=0, ge=0)
    """Printed decimals."""
    note: str = ""
    """A sentence on how the column was measured."""


class PublishedRow(_Part):
    """One row of a published table."""

    name: str
    """Label in the document."""
    row: str | None = None
    """Label of our row that repeats it; None if no row does."""
    against: str | None = None
    """Name of the published row with which it is compared; None: the control's. A row against itself has no change."""
    figures: tuple[float | None, ...]
    """One figure for each column; None where the document has none."""


class PrintedChange(_Part):
    """A change that the text of the document prints."""

    row: str
    """Name of the published row."""
    against: str
    """Name of the published row from which the change counts."""
    column: str
    printed: str = Field(pattern=r"^[+−-]\d+(\.\d+)? %$")
    """The change as it is printed, such as "+85 %"."""


class PublishedStudy(_Part):
    """A published study: its document, its table, and what was wrong with it."""

    document: str
    """Author, title and date."""
    place: str = ""
    """Table, figure or page of the figures."""
    setup: str = ""
    """Hardware, software and protocol, as the document gives them."""
    wrong: tuple[str, ...] = ()
    """Faults of the study, one sentence each; those that its author admits say so."""
    control: str | None = None
    """Name of the published row from which changes count."""
    columns: tuple[PublishedColumn, ...] = ()
    rows: tuple[PublishedRow, ...] = ()
    printed: tuple[PrintedChange, ...] = ()

    @model_validator(mode="after")
    def _table_is_whole(self) -> Self:
        names = [one.name for one in self.rows]
        columns = [one.name for one in self.columns]
        _different("rows", names)
        _different("columns", columns)
        _different("rows, of which one of our rows repeats two,", [one.row for one in self.rows if one.row])
        for row in self.rows:
            if len(row.figures) != len(columns):
                raise ValueError(f"the row {row.name!r} has {len(row.figures)} figures for {len(columns)} columns")
        if self.rows and self.control is None:
            raise ValueError("a table needs a control: name the row from which its changes count")
        _known("control", filter(None, (self.control,)), names)
        _known("against", filter(None, (one.against for one in self.rows)), names)
        for one in self.printed:
            _known("printed", (one.row, one.against), names)
            _known("printed", (one.column,), columns)
            self.figure(one.row, one.column)
            self.figure(one.against, one.column)
        return self

    def named(self, name: str) -> PublishedRow:
        """Return the row of a name."""
        return next(row for row in self.rows if row.name == name)

    def figure(self, row: str, column: str) -> float:
        """Return one figure of the table. Raises `ValueError` if it has none."""
        found = self.named(row).figures[[one.name for one in self.columns].index(column)]
        if not found:
            raise ValueError(f"the row {row!r} has no figure of {column!r}, and a printed change needs it")
        return found

    def reference(self, row: PublishedRow) -> PublishedRow:
        """Return the row from which the changes of another count."""
        return self.named(row.against or self.control or row.name)


def _different(what: str, names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} name {name!r} twice; leave one of them out")
        seen.add(name)


def _known(what: str, names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            hint = among(name, known)
            raise ValueError(f"{what} names {short_text(name)}, which the table does not have{hint}")
