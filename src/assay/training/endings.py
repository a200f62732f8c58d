"""The ways in which training stops before its last step. Each is raised where it happens, and is a result."""

import re

from assay.units import format_bytes


class Ending(Exception):
    """Training stops here; the text is the reason, one sentence."""


class TargetReached(Ending):
    """An evaluation's loss is as low as was asked for."""


class BudgetReached(Ending):
    """The tokens or seconds that were granted are spent; a resumed run with more goes on."""


class Interrupted(Ending):
    """Someone asked the run to stop."""


class Unread(Ending):
    """The next step's batch cannot be read; the steps before it stand."""


class Diverged(Ending):
    """A loss or a gradient is not finite; the first such tensor is named."""


class NoEffect(Ending):
    """An optimization left no trace of itself."""


class WrongValues(Ending):
    """An optimization took effect, and computes other values than it promises."""


class Unproven(Ending):
    """The last step is done, and of those that were watched none made its update."""


_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out: torch raises a plain `RuntimeError` on a CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def what_was_refused(error: BaseException) -> str:
    """What did not fit, in words: the allocators of torch say so between places in their source."""
    asked = re.search(r"tried to allocate ([\d.]+ ?\w+)", str(error))
    if asked is None:
        return str(error).strip().split("\n")[0] or "no more memory was to be had"
    number, _, unit = asked[1].partition(" ")
    size = format_bytes(int(number)) if unit == "bytes" else asked[1]
    return f"a tensor of {size} was refused"
