"""The entry of one run in the list of all runs: the figures of a table, and the fields that keep the store correct.

It is a plain tuple of numbers and texts, so that thousands can be read without loading the configuration models.
"""

import json
import marshal
import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from assay.records.run import RunResult

_LARGEST = 2**63
_NAMED = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}-[0-9a-f]{4}-(.+)")


def given_name(run: str) -> str | None:
    """The name that a user gave the run with this id, or None."""
    found = _NAMED.fullmatch(run)
    return found[1] if found else None


# More than 20 fields: it is one row of a table in SQLite, and each field is a column.
class Entry(NamedTuple):
    """A row of the store. `None` means that the figure is not available."""

    run: str
    status: str
    stamp: int
    """Stamp of the `result.json` that the entry was made from."""
    reason: str | None = None
    created: str | None = None
    identity: str | None = None
    preset: str | None = None
    corpus: str | None = None
    n_layer: int | None = None
    n_head: int | None = None
    n_embd: int | None = None
    context_length: int | None = None
    optimizations: str = "[]"
    """JSON list of the arguments of ``--with``."""
    steps: int | None = None
    tokens: int | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    tokens_per_second: float | None = None
    tensors_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    assay: str | None = None
    torch: str | None = None
    device: str | None = None
    processor: str | None = None
    threads: int | None = None
    corpus_digest: str | None = None
    nudge: int | None = None
    """Nudge of the initial weights; 0 if they are as drawn."""
    blocks: int | None = None
    """Number of timed blocks."""
    disturbed_blocks: int | None = None
    """Number of them in which other programs took processor time."""
    val_targets: int | None = None
    """Number of held-out tokens that were predicted for `val_loss`."""

    @property
    def evaluation(self) -> tuple[object, ...] | None:
        """Facts on which a loss depends besides the model; None without a loss. Losses of unequal ones are unlike."""
        return None if self.val_loss is None else (self.corpus_digest, self.context_length, self.val_targets)

    @property
    def checksum(self) -> int:
        """CRC-32 of all values, which detects a damaged row of the store."""
        # Version 2 is the oldest with binary floats. Later ones also depend on the identity of strings.
        return zlib.crc32(marshal.dumps(tuple(self), 2))


TYPES = {
    name: next((column for word, column in (("int", "INTEGER"), ("float", "REAL")) if word in str(kind)), "TEXT")
    for name, kind in Entry.__annotations__.items()
}
"""SQLite's type of each column."""


def entry_of(result: "RunResult", stamp: int) -> Entry:
    """Make a run's entry. Raises `ValueError` if a number or a text cannot be stored."""
    config, here = result.config, result.environment
    named = ("assay", "torch", "device", "processor", "threads", "corpus_digest")
    shape = ("n_layer", "n_head", "n_embd", "context_length")
    figures = ("steps", "tokens", "train_loss", "val_loss", "val_targets", "tokens_per_second")
    values: dict[str, Any] = {
        "corpus": config.data.path or config.data.corpus,
        "optimizations": json.dumps([str(spec) for spec in config.optimizations]),
        "nudge": config.nudge,
        "blocks": len(result.blocks),
        "disturbed_blocks": sum(block.disturbed for block in result.blocks),
        **{name: getattr(result, name) for name in ("run", "reason", "created", "identity", "preset", *figures)},
        **{name: getattr(config.model, name) for name in shape},
        **{name: getattr(result.memory, name) for name in ("tensors_peak_bytes", "process_peak_bytes")},
        **{name: getattr(here, name, None) for name in named},
    }
    for name, value in values.items():
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise ValueError(f"{name} is too large a number")
        if isinstance(value, str):
            value.encode()
    return Entry(status=result.status.value, stamp=stamp, **values)
