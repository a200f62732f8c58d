"""Text on what fits into some memory."""

from collections.abc import Iterator
from typing import Any

from assay.estimator.capacity import Capacity, Fitting
from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.units import format_bytes

_TITLES = {
    "training.batch_size": "sequences per step",
    "model.context_length": "context",
    "model.n_layer": "layers",
    "model.n_embd": "width",
}


MEANING = {
    "tensors": "the tensors of a step, as an allocator serves them, library scratch, and on a CPU 2 MiB for objects of "
    "the program, beyond the started process",
    "process": "the tensors of a step, library scratch, and the most that a started process holds",
    "device": "what torch's allocator reserves for a step at most, and the largest context of CUDA",
}
"""Meaning of a need, by the memory that a budget limits."""


class CapacityView(Shown[Capacity]):
    """The largest settings within a budget, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield whether the run fits as it is, the largest value of each setting, and what the rows mean."""
        found, budget = self.found, format_bytes(self.found.budget_bytes)
        configured = found[0].largest
        fits = "fits" if configured.configured_bytes <= found.budget_bytes else "does not fit"
        sequences = "sequence" if configured.configured == 1 else "sequences"
        yield (
            f"As it is configured, with {configured.configured:,} {sequences}, a step {fits}: it needs "
            f"{format_bytes(configured.configured_bytes)} of {budget}."
        )
        verified = any(one.measured_bytes is not None or one.failure for one in found)
        columns = ("setting", "configured", "largest", "needs", "measured tensors", "the next needs")
        shown = columns if verified else columns[:4] + columns[5:]
        rows = [_row(one, verified) for one in found]
        yield Table.of(shown, rows, shown[1:])
        for one in found:
            if one.largest.value is None:
                least = f"{one.largest.key}={one.largest.unit} needs {format_bytes(one.largest.peak_bytes)}"
                yield f"No {one.largest.key} is small enough for {budget}: {least}."
            if one.failure:
                yield f"{one.largest.key}={one.largest.value}: {one.failure}"
        if not verified:
            yield "These are predictions, and no run was made. --verify trains each answer for three steps."
        yield (
            f"The budget is {budget}. Each setting grows alone, with all others as configured. "
            f"Needs are {MEANING[found.of]}."
        )

    def values(self) -> dict[str, Any]:
        """Return the budget, and the largest value of each setting, for programs."""
        found = self.found
        return {"memory_bytes": found.budget_bytes, "of": found.of, "largest": [one.to_dict() for one in found]}


def _row(one: Fitting, verified: bool) -> tuple[str, ...]:
    found = one.largest
    value, peak = ("none", "–") if found.value is None else (str(found.value), format_bytes(found.peak_bytes))
    in_units = f", in {found.unit}s" if found.unit > 1 else ""
    measured = ("–" if one.measured_bytes is None else format_bytes(one.measured_bytes),) if verified else ()
    following = "–" if found.next_bytes is None or found.value is None else format_bytes(found.next_bytes)
    title = f"{_TITLES[found.key]}{in_units}"
    return title, str(found.configured), value, peak, *measured, following
