"""Promises of a row's losses, against those of the control.

Techniques promise something only where nothing else differs. A row with another learning rate, batch or model promises
nothing: its losses may equal the control's, or be anything else.
"""

from assay.config.run import ResolvedRun
from assay.optimizations import Numerics, numerics_of
from assay.optimizations.discovery import all_known

_NO_MATTER = {"optimizations", "batch_divisor", "seed", "nudge", "ranks", "threads", "cores", "oversubscribe", "device"}
"""Fields of a run that techniques change, or that change no loss beyond rounding."""


def comparable(run: ResolvedRun, other: ResolvedRun) -> bool:
    """True if two runs differ in nothing that decides a loss but optimizations, seed and place."""
    return run.model_dump(exclude=_NO_MATTER) == other.model_dump(exclude=_NO_MATTER)


def promised(run: ResolvedRun, control: ResolvedRun | None) -> Numerics | None:
    """Return the loosest promise of a run's techniques; None if something else differs from the control.

    Without a control the promise is that of the techniques. A technique that is not known any more promises nothing.
    """
    if not all_known(run):
        return None
    return numerics_of(run) if control is None or comparable(run, control) else None
