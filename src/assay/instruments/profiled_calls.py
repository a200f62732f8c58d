"""Count the operators of a step by torch's profiler, which no dispatch mode and no hook of a tensor takes part in.

A technique may act only while a dispatch mode watches. The profiler sees the calls of operators from below, in a step
that runs as timed ones do. It counts an operator under its name without overload, and also one that a recomputation
begins and breaks off.
"""

from collections import Counter
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

_OPERATOR = "aten::"


def profiled_calls(work: Callable[[], None]) -> Counter[str]:
    """Call `work`, and return how often it called each operator, by its name such as `mm`."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        work()
    named = (event.name for event in seen.events())
    return Counter(name.removeprefix(_OPERATOR) for name in named if name.startswith(_OPERATOR))
