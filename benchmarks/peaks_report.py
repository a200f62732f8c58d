"""Predicted and measured peaks as lines, tables on a terminal and Markdown: every row is there, or why it has none."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from assay.analysis.catalogue import device_of
from assay.hardware import detect
from assay.units import format_bytes

HEAD = """# Predicted peaks against measured ones

Each row is a run of its own: the peak of tensors that the ledger predicted before it, the one that its memory pass
counted, and the error of the first. It may be 5 % of an optimization alone, 8 % of a stack. What is highest when is
named once where both name the same. Shapes are layers / width / context.
"""
_BEFORE_TITLE = "\n## "

COLUMNS = ("treatment", "predicted", "measured", "error", "highest at")


@dataclass(frozen=True)
class Row:
    """One treatment on one shape."""

    treatment: str
    bound: float
    """Largest error, as a fraction."""
    predicted_bytes: int | None = None
    measured_bytes: int | None = None
    predicted_instant: str = ""
    measured_instant: str = ""
    reason: str = ""
    """Why there are no figures."""
    failed: bool = False
    """Whether it should have had some."""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        if self.predicted_bytes is None or not self.measured_bytes:
            return None
        return self.predicted_bytes / self.measured_bytes - 1

    @property
    def within(self) -> bool:
        """Whether the error is small enough, or nothing was to be expected."""
        return not self.failed if self.error is None else abs(self.error) <= self.bound


def fields(row: Row) -> tuple[str, ...]:
    """In the order of `COLUMNS`."""
    name = row.treatment or "baseline"
    if row.error is None:
        return name, "", "", "failed" if row.failed else "", row.reason
    instants = dict.fromkeys((row.measured_instant, row.predicted_instant))
    error = f"{row.error:+.2%}" + ("" if row.within else f", beyond {row.bound:.0%}")
    bytes_ = (format_bytes(one or 0) for one in (row.predicted_bytes, row.measured_bytes))
    return name, *bytes_, error, ", predicted ".join(instants)


def line(row: Row) -> str:
    """For who waits."""
    return "  ".join(filter(None, fields(row)))


def table(title: str, rows: Sequence[Row]) -> None:
    """Drawn on a terminal, and readable in a pipe."""
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=f"{title}: {summary(rows)}", title_justify="left")
    for column in COLUMNS:
        drawn.add_column(column, justify="right" if column in COLUMNS[1:4] else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*fields(row))
    Console(markup=False, highlight=False).print(drawn)


def summary(rows: Sequence[Row]) -> str:
    """How many were held against their measurement, and the largest error."""
    errors = [abs(row.error) for row in rows if row.error is not None]
    beyond = sum(not row.within for row in rows)
    return (
        f"{len(errors)} of {len(rows)} measured, largest error {max(errors, default=0.0):.2%}, {beyond} beyond bounds"
    )


def section(title: str, rows: Sequence[Row], command: str) -> str:
    """One shape as Markdown, under where and how it was measured."""
    where = f"{device_of(detect())}; torch {version('torch')}, Python {platform.python_version()}"
    text = f"{title}\n\n{where}; {datetime.now(UTC):%Y-%m-%d}: `{command}`. {summary(rows)}.\n\n"
    return text + "".join("| " + " | ".join(cells) + " |\n" for cells in (COLUMNS, ["---"] * 5, *map(fields, rows)))


def renewed(page: str, section: str) -> str:
    """The page with a section in the place of the one of the same title, or behind the others."""
    _, *known = page.split(_BEFORE_TITLE)
    by_title = {one.partition("\n")[0]: one.rstrip("\n") + "\n" for one in (*known, section)}
    return HEAD + "".join(_BEFORE_TITLE + one for one in by_title.values())
