"""Reasons for which training ends early. Each is an exception, raised where it occurs, and becomes the run's result."""

import re
from collections.abc import Callable

from assay.units import format_bytes


class EarlyEnd(Exception):
    """Training ends here; the message is the reason, one sentence."""


class TargetReached(EarlyEnd):
    """An evaluation's loss is at or below the target loss."""


class BudgetReached(EarlyEnd):
    """The budget of tokens or seconds is spent; a run that is resumed with a larger budget continues."""


class Interrupted(EarlyEnd):
    """The user, or the process that started the run, requested a stop."""


class Unread(EarlyEnd):
    """The next step's batch, or one that is held out, cannot be read; the steps before it remain valid."""


class Diverged(EarlyEnd):
    """A loss or a gradient is not finite; the message names the first tensor that is not."""


class NoEffect(EarlyEnd):
    """An optimization did not take effect: the trace shows no sign of it."""


class WrongValues(EarlyEnd):
    """An optimization took effect, but computes other values than it promises."""


class Unproven(EarlyEnd):
    """A proof that was due could not be made: each traced step skipped its update, or a check had no answer."""


_NO_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory"),
    "storage size calculation overflowed",  # more than 2^63 bytes
)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an exception means that memory ran out; on a CPU, torch raises a plain `RuntimeError`."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def what_was_refused(error: BaseException) -> str:
    """Describe the allocation that failed, in words. Torch's allocators mix its size with places in their source."""
    asked = re.search(r"tried to allocate ([\d.]+ ?\w+)", str(error))
    if asked is None:
        return str(error).strip().split("\n")[0] or "no memory was left"
    number, _, unit = asked[1].partition(" ")
    size = format_bytes(int(number)) if unit == "bytes" else asked[1]
    return f"a tensor of {size} could not be allocated"


def early_end_of(work: Callable[[], None]) -> EarlyEnd | None:
    """Call `work`, and return the ending if it stops early with a result; such a run is still evaluated and saved."""
    try:
        work()
    except (BudgetReached, TargetReached, Unproven) as stop:
        return stop
    return None
