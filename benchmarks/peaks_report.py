"""Predicted and measured peaks as lines, tables on a terminal and Markdown: every row is there, or why it has none."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from assay.analysis.catalogue import device_of
from assay.hardware import detect
from assay.units import format_bytes

HEAD = """# Predicted peaks against measured ones

Each row is a separate run: the peak of tensors that the ledger predicted before it, the peak that its memory pass
counted, and the error of the prediction. The error may be 5 % for an optimization alone and 8 % for a stack. The last
column names the measured instant of the peak, and the predicted one if it differs. Shapes are layers / width / context.
"""
_BEFORE_TITLE = "\n## "

Cells = tuple[str, ...]
"""A row as text, in the order of `COLUMNS`."""

COLUMNS = ("treatment", "predicted", "measured", "error", "highest at")
_RULE = ("---",) * len(COLUMNS)


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


def fields(row: Row) -> Cells:
    """A row as text."""
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

    cells = list(map(fields, rows))
    drawn = Table(title=f"{title}: {summary(cells)}", title_justify="left")
    for column in COLUMNS:
        drawn.add_column(column, justify="right" if column in COLUMNS[1:4] else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*row)
    Console(markup=False, highlight=False).print(drawn)


def summary(rows: Sequence[Cells]) -> str:
    """How many were held against their measurement, and the largest error."""
    errors = [abs(float(error.partition("%")[0])) for _, _, _, error, _ in rows if "%" in error]
    beyond = sum("beyond" in error or error == "failed" for _, _, _, error, _ in rows)
    return (
        f"{len(errors)} of {len(rows)} measured, largest error {max(errors, default=0.0):.2f}%, {beyond} beyond bounds"
    )


def section(title: str, rows: Sequence[Cells], command: str) -> str:
    """One shape as Markdown, under where and how it was measured."""
    where = f"{device_of(detect())}; torch {version('torch')}, Python {platform.python_version()}"
    text = f"{title}\n\n{where}; {datetime.now(UTC):%Y-%m-%d}: `{command}`. {summary(rows)}.\n\n"
    return text + "".join(f"| {' | '.join(cells)} |\n" for cells in (COLUMNS, _RULE, *rows))


def renewed(page: str, title: str, rows: Sequence[Row], command: str) -> str:
    """The page with rows of a section in the places of those of the same treatments, or behind the others."""
    known = {one.partition("\n")[0]: one.rstrip("\n") + "\n" for one in page.split(_BEFORE_TITLE)[1:]}
    by_treatment = {cells[0]: cells for cells in (*_cells(known.get(title, "")), *map(fields, rows))}
    known[title] = section(title, list(by_treatment.values()), command)
    return HEAD + "".join(_BEFORE_TITLE + one for one in known.values())


def _cells(section: str) -> Iterator[Cells]:
    """The rows that a section has."""
    for text in section.splitlines():
        cells = tuple(text.removeprefix("| ").removesuffix(" |").split(" | "))
        if text.startswith("|") and len(cells) == len(COLUMNS) and cells not in (COLUMNS, _RULE):
            yield cells
