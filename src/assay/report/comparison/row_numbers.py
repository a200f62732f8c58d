"""The number of a row, by which it has its colour and the shape of its point in every figure (`report.kit.drawing`).

A technique has one colour in all studies, so that a reader who knows one page reads the next. Rows that turn on this
technique alone share it, and differ in the shape of their points. Other rows have the colours that are left.
"""

from collections.abc import Mapping
from itertools import count, cycle
from zlib import crc32

from assay.records.study import BASELINE, ComparisonRecord
from assay.report.kit.drawing import COLOURS, SHAPES

_FAMILIAR = (
    "bf16_mixed",
    "sdpa_attention",
    "activation_checkpointing",
    "gradient_accumulation",
    "sgd",
    "fp16_mixed",
    "compile",
    "smaller_batch",
)
"""Techniques that are often beside each other, in the order of the colours. Others have a colour by their name."""


def row_numbers(record: ComparisonRecord) -> Mapping[str, int]:
    """Return the number of each row; that of the baseline is 0."""
    alone = {row: name for row in record.treatments if (name := _technique(record, row))}
    colours = _of_techniques(dict.fromkeys(alone.values()))
    left = cycle([one for one in range(COLOURS) if one not in colours.values()] or range(COLOURS))
    found = {BASELINE: 0}
    for place, row in enumerate(record.treatments, start=1):
        found[row] = _number(colours[alone[row]] if row in alone else next(left), place % SHAPES)
    return found


def _technique(record: ComparisonRecord, row: str) -> str | None:
    """Return the technique by which a row differs from the control, if it is one alone."""
    first = {name: next(iter(record.of(name)), None) for name in (BASELINE, row)}
    names = {name: {one.name for one in cell.cell.run.optimizations} if cell else set() for name, cell in first.items()}
    more = names[row] - names[BASELINE]
    return more.pop() if len(more) == 1 else None


def _of_techniques(names: Mapping[str, None]) -> dict[str, int]:
    """Return a colour for each technique: its own, or the next that no technique before it has."""
    found: dict[str, int] = {}
    for name in sorted(names, key=lambda one: one not in _FAMILIAR):
        own = _FAMILIAR.index(name) if name in _FAMILIAR else crc32(name.encode()) % COLOURS
        ways = [(own + step) % COLOURS for step in range(COLOURS)]
        found[name] = next((one for one in ways if one not in found.values()), own)
    return found


def _number(colour: int, shape: int) -> int:
    """Return the smallest number from 1 on that has a colour and a shape; their counts have no common divisor."""
    return next(one for one in count(1) if (one - 1) % COLOURS == colour and one % SHAPES == shape)
