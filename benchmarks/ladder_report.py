"""A ladder as tables and as one JSON value: every row is there, with its figures or with why it has none."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.units import format_bytes, format_count, format_percent, format_seconds
from ladder_cells import Outcome

TITLES = (
    *("rung", "batch", "step", "tokens/s", "MFU", "allocated", "reserved", "predicted"),
    *("tokens seen", "documents", "how it ended"),
)


@dataclass(frozen=True)
class Row:
    """A cell under its name."""

    title: str
    outcome: Outcome


@dataclass(frozen=True)
class Ladder:
    """All that one script measured."""

    device: str
    torch: str
    date: str
    configuration: dict[str, Any]
    memory_bytes: int
    climbed: list[Row]
    left_out: list[Row]
    """The first is the full stack."""
    alone: list[Row]
    """The first is the baseline."""


def cells(row: Row) -> tuple[str, ...]:
    """A row's texts under `TITLES`; a peak that is not predicted is a dash."""
    one = row.outcome
    return (
        row.title,
        str(one.batch),
        "" if one.step_seconds is None else format_seconds(one.step_seconds),
        "" if one.tokens_per_second is None else format_count(one.tokens_per_second),
        "" if one.mfu is None else f"{one.mfu:.1%}",
        *("–" if held is None else format_bytes(held) for held in (one.allocated_bytes, one.reserved_bytes)),
        "–" if one.predicted_bytes is None else format_bytes(one.predicted_bytes),
        format_count(one.tokens),
        "" if one.documents is None else f"{one.documents:.1f}",
        one.status.replace("_", " ") + (f": {one.reason}" if one.reason else ""),
    )


def line(row: Row) -> str:
    """For the person who waits."""
    return " · ".join(filter(None, cells(row)))


def against(row: Row, reference: Row) -> str:
    """Speed and allocated memory beside those of the first row of a table."""
    found = []
    for title, name in (("tokens/s", "tokens_per_second"), ("allocated", "allocated_bytes")):
        before, after = getattr(reference.outcome, name), getattr(row.outcome, name)
        if before and after:
            found.append(f"{title} {format_percent(after / before - 1)}")
    return ", ".join(found)


def markdown(found: Ladder) -> str:
    """The three tables."""
    model = found.configuration["model"]
    shape = f"{model['n_layer']} layers of width {model['n_embd']}, context {model['context_length']}"
    head = (
        f"# The ladder on {found.device}\n\n{shape}; torch {found.torch}; {found.date}; batches fill "
        f"{format_bytes(found.memory_bytes)}. MFU is relative to the peak of the dtypes in which a cell "
        "multiplies. Each cell is one run. The first rung is in two tables, and its difference between them is noise. "
        "`benchmarks/ladder_gpt2_124m.py` repeats the measurement.\n"
    )
    parts = [head, "\n## Rung by rung\n\n", _table(TITLES, [cells(row) for row in found.climbed])]
    for title, rows in (("Left out of the full stack", found.left_out), ("Alone on the baseline", found.alone)):
        compared = [(*cells(row), "" if row is rows[0] else against(row, rows[0])) for row in rows]
        parts += [f"\n## {title}\n\n", _table((*TITLES, f"against {rows[0].title}"), compared)]
    return "".join(parts)


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def write(found: Ladder, out: Path | None) -> None:
    """Print the tables, and write PATH.md and PATH.json where a path is given."""
    text = markdown(found)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_name(f"{out.name}.md").write_text(text, encoding="utf-8")
        values = json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n"
        out.with_name(f"{out.name}.json").write_text(values, encoding="utf-8")
