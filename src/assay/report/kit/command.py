"""A configuration as it is written on the command line: its preset or file, and what differs from that."""

import json
import shlex
from typing import TYPE_CHECKING, Any

from assay.errors import UsageError
from assay.report.blocks import leaves

if TYPE_CHECKING:
    from assay.config import ResolvedRun, Run

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
