"""Traces that no step made: an empty one, and ones with other values."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.records.trace import Optimizer, Trace, TracedBatch, TracedMemory

PARTS = ("batch", "memory", "optimizer", "graphs", "precision")
EMPTY = Trace(
    operations=(),
    loss=0.0,
    forwards=1,
    batch=TracedBatch(targets=1),
    memory=TracedMemory(saved_bytes={}, parameter_bytes=0, gradient_bytes=0, optimizer_state_bytes=0),
    optimizer=Optimizer(),
    shared_parameters=(),
    synchronizations={},
)
"""A step in which nothing was seen."""


def altered(trace: Trace, **changes: object) -> Trace:
    """The trace with other values of these fields, of its own or of its parts."""
    unknown, parts = set(changes), {}
    for name in PARTS:
        part = getattr(trace, name)
        own = {key: value for key, value in changes.items() if key in type(part).model_fields}
        parts[name] = part.model_copy(update=own)
        unknown -= own.keys()
    assert unknown <= Trace.model_fields.keys(), unknown
    return trace.model_copy(update={**parts, **{key: changes[key] for key in unknown}})


def nest(slices: Sequence[Mapping[str, Any]]) -> bool:
    """True if any two slices of a trace are apart, or one is inside the other; times are in microseconds."""
    stack: list[float] = []
    rounding = 1e-6
    for one in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
        while stack and stack[-1] <= one["ts"] + rounding:
            stack.pop()
        end = one["ts"] + one["dur"]
        if stack and end > stack[-1] + rounding:
            return False
        stack.append(end)
    return True
