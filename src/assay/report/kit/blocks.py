"""Content of a report as plain data: facts, tables and sentences, the texts of figures in them, and aligned text.

A terminal shows texts of records as texts. A configuration is written as on the command line: its preset or file, and
what differs from that.
"""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from assay.errors import UsageError, legible
from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from assay.analysis.metrics.base import Unit
    from assay.config import ResolvedRun, Run


@dataclass(frozen=True)
class Facts:
    """Lines of a label and a text."""

    rows: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]]) -> Self:
        """Facts from any iterable of (label, text)."""
        return cls(tuple(rows))


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    """Columns of figures, which are aligned right."""
    spare: tuple[str, ...] = ()
    """Columns that are left out first, in this order, where there is little room."""

    @classmethod
    def of(
        cls,
        columns: Iterable[str],
        rows: Iterable[Iterable[str]],
        right: Iterable[str] = (),
        spare: Iterable[str] = (),
    ) -> Self:
        """Table from any iterables of texts."""
        return cls(tuple(columns), tuple(map(tuple, rows)), frozenset(right), tuple(spare))


Block = Facts | Table | str
"""A part of a report; a text is a paragraph of its own."""


UNKNOWN = "–"
"""Text of a missing figure."""


def figure(value: float | None, digits: int = 4) -> str:
    """Format a plain number, or a dash if it is missing."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def amount(count: float | None) -> str:
    """Format bytes, or a dash if they are missing."""
    return UNKNOWN if count is None else format_bytes(count)


def quantity(value: float, unit: "Unit") -> str:
    """Format a metric's value by its unit."""
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    return figure(value) if unit in ("nats", "ratio") else format_count(value)


def leaves(values: object, prefix: str = "") -> dict[str, object]:
    """Flatten nested values to ``key.key`` → value; a list or an empty mapping is a value."""
    if isinstance(values, dict) and values:
        return {key: leaf for name, value in values.items() for key, leaf in leaves(value, f"{prefix}{name}.").items()}
    return {prefix.removesuffix("."): values}


def spell_value(value: object) -> str:
    """Return a value of a configuration as it is written; None is unknown."""
    if isinstance(value, list):
        return " + ".join(_spec(one) if isinstance(one, dict) else str(one) for one in value) or "none"
    return UNKNOWN if value is None else str(value)


def _spec(value: object) -> str:
    from assay.config import Spec

    return str(Spec.model_validate(value))


def plain_text(blocks: Iterable[Block]) -> str:
    """Return the parts of a report as text, with an empty line between two of them."""
    return "\n\n".join(filter(None, map(_block, blocks)))


def _block(block: Block) -> str:
    if isinstance(block, Facts):
        return _aligned(block.rows, right=())
    if isinstance(block, Table):
        right = [place for place, column in enumerate(block.columns) if column in block.right]
        return _aligned((block.columns, *block.rows), right)
    return block


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def legible_console(**options: Any) -> "Console":
    """Return a console with options of rich's `Console`. Everything that it draws passes through `legible`.

    Styles and movements of the cursor are not texts to rich, so they stay.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Legible(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=legible(segment.text))

    return Legible(**options)


_MOST = 8
"""Most overrides; a longer command is no help."""
_VOCABULARY = "model.vocab_size"
_APART = {"optimizations", "nudge"}


def arguments(run: "ResolvedRun", source: str | None, *, seed: bool = True) -> str | None:
    """Return ``demo training.steps=20`` for a run from a preset or a file; None if it cannot be written so.

    The stack is not part of it, nor is the seed unless `seed`. A file may have changed since the run, so it is read
    anew, and what differs is an override.
    """
    from assay.config import load
    from assay.optimizations import resolve_run

    if source is None:
        return None
    try:
        base = resolve_run(load(source)).with_vocabulary()
    except UsageError:
        return None
    left_out = _APART if seed else {*_APART, "seed"}
    ours, theirs = (leaves(one.model_dump(mode="json", exclude=left_out)) for one in (run, base))
    if None in (ours[_VOCABULARY], theirs[_VOCABULARY]):  # it follows from the text
        theirs[_VOCABULARY] = ours[_VOCABULARY]
    changed = [f"{key}={_written(value)}" for key, value in ours.items() if value != theirs.get(key)]
    return None if len(changed) > _MOST else " ".join([shlex.quote(source), *map(shlex.quote, changed)])


def stack_summary(run: "Run") -> str:
    """Return techniques as they are written after ``--with``; ``"none"`` for the baseline."""
    return "+".join(map(str, run.optimizations)) or "none"


def stack(run: "ResolvedRun") -> str:
    """Return ``--with NAME+NAME`` for the techniques of a run; empty for a baseline."""
    return option("+".join(map(str, run.optimizations))) if run.optimizations else ""


def option(stacked: str) -> str:
    """Return ``--with NAME+NAME`` for techniques as they are typed."""
    return f"--with {shlex.quote(stacked)}"


def _written(value: Any) -> str:
    """Return a value as an override has it."""
    return value if isinstance(value, str) else json.dumps(value)
