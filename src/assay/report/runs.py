"""The list of runs: its columns, and the text of a run in each of them."""

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from assay.report.formats import UNKNOWN, amount, figure
from assay.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.store.entry import Entry

FIGURES = ("steps", "val loss", "tokens/s", "tensors peak", "process peak")
COLUMNS = ("run", "status", "created", "preset", "corpus", "model", "with", *FIGURES)
SPARE = ("created", "model", "process peak", "corpus", "tokens/s", "steps", "preset")
"""Columns that a narrow terminal leaves out first. An id begins with the time of its creation."""

_KEPT = ("run", "status", "reason", "created", "identity", "preset", "corpus", "nudge", "steps", "tokens", "train_loss")
_KEPT_FIGURES = ("val_loss", "tokens_per_second", "tensors_peak_bytes", "process_peak_bytes")
_KEPT_COUNTS = ("blocks", "disturbed_blocks")


def row(entry: "Entry") -> tuple[str, ...]:
    """Return a run as a row of the table."""
    shape = (entry.n_layer, entry.n_head, entry.n_embd, entry.context_length)
    return (
        entry.run,
        _status(entry),
        (entry.created or UNKNOWN)[:19].replace("T", " "),
        entry.preset or UNKNOWN,
        _shortened(entry.corpus),
        UNKNOWN if None in shape else "{}L {}H {}E {}T".format(*shape),
        UNKNOWN if entry.identity is None else _stack(entry.optimizations) + (" (nudged)" if entry.nudge else ""),
        UNKNOWN if entry.steps is None else str(entry.steps),
        figure(entry.val_loss),
        UNKNOWN if entry.tokens_per_second is None else format_count(entry.tokens_per_second),
        amount(entry.tensors_peak_bytes),
        amount(entry.process_peak_bytes),
    )


def brief(entry: "Entry") -> dict[str, Any]:
    """Return a run as a value of ``--json``."""
    from assay.store.entry import given_name

    values = entry._asdict()
    kept = {name: values[name] for name in (*_KEPT, *_KEPT_FIGURES, *_KEPT_COUNTS)}
    return {**kept, "name": given_name(entry.run), "optimizations": json.loads(entry.optimizations)}


def known_status(text: str, entries: "Sequence[Entry]") -> str:
    """Return a status that a run can have. Raises `UsageError` for another word."""
    if any(entry.status == text for entry in entries):
        return text
    from assay.errors import UsageError, meant
    from assay.records.status import Status

    known = [one.value for one in Status]
    others = f"; choose from {', '.join(known)}"
    if text not in known:
        raise UsageError(f"there is no status {text!r}{meant(text, known) or others}")
    return text


def _status(entry: "Entry") -> str:
    """Return the status, with the number of timed blocks that other programs disturbed, if there are any."""
    if not entry.disturbed_blocks:
        return entry.status
    return f"{entry.status} (disturbed {entry.disturbed_blocks}/{entry.blocks})"


@cache
def _stack(optimizations: str) -> str:
    return "+".join(json.loads(optimizations)) or "none"


def _shortened(corpus: str | None) -> str:
    """Shorten a file to its name; the folders before it rarely distinguish two runs."""
    return UNKNOWN if corpus is None else corpus.rstrip("/").rpartition("/")[2] or corpus
