"""A measured step of a user's own as text: its memory by part, its time, its operators, and where they go.

Its proof against a baseline follows: its values, its peak, and the operators that differ.
"""

from collections import Counter
from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any

from assay.records.own import OwnStep
from assay.report.anatomy import AnatomyView, sums_table
from assay.report.comparison.wording import value_check
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table, figure
from assay.report.kit.view import Shown
from assay.units import format_bytes, format_count, format_flops, format_percent, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.records.own import OwnProof

_SHOWN = 12
"""Most modules and operators to show."""


def proof_report(step: OwnStep, proof: "OwnProof") -> Iterator[Block]:
    """Yield the verdict with its reasons, and the operators that were added or vanished."""
    yield Facts.of(_proof_facts(step, proof))
    rows = [(one.name, one.phase, one.dtype, str(one.baseline), str(one.count)) for one in proof.operators[:_SHOWN]]
    if rows:
        yield Table.of(("operators that differ", "phase", "dtype", "baseline", "here"), rows, ("baseline", "here"))
    if more := len(proof.operators) - len(rows):
        yield f"{more} more operators differ."


def _proof_facts(step: OwnStep, proof: "OwnProof") -> Iterator[tuple[str, str]]:
    baseline = proof.baseline
    yield "against", baseline.program.title
    same = ": its operators, its memory and their dtypes are those of the baseline"
    yield "verdict", proof.verdict + (same if proof.status == "no_effect" else "")
    yield "values", value_check(proof.values, "the baseline's")
    yield "own peak", _changed(baseline.own_peak_bytes, step.own_peak_bytes)
    times = (format_seconds(one.step_seconds.median) for one in (baseline, step))
    yield "step time", f"{' → '.join(times)}, measured one after the other"


def _changed(before: int | None, after: int | None) -> str:
    if not before or after is None:
        return UNKNOWN
    return f"{format_bytes(before)} → {format_bytes(after)}, {format_percent(after / before - 1)}"


_MEMORY = {
    "tensors_peak_bytes": "tensors, peak",
    "library_scratch_bytes": "scratch of libraries, in addition",
    "waiting_peak_bytes": "freed, waiting for another stream",
    "reserved_peak_bytes": "reserved by torch's allocator",
    "heap_peak_bytes": "heap, peak",
    "process_peak_bytes": "process, peak",
    "device_peak_bytes": "device, used by all processes",
}
_SHOWN = 12
"""Most modules and operators to show."""


class OwnStepView(Shown[OwnStep]):
    """A measured step of a user's own, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield what the step is, its memory, its operators, its modules, and what was not measured."""
        step = self.found
        yield Facts.of(_facts(step))
        if step.proof is not None:
            yield from proof_report(step, step.proof)
        yield _memory(step)
        yield _parts(step)
        yield _operators(step)
        if step.anatomy is not None:
            modules = sorted(step.anatomy.by_module().items(), key=lambda item: -item[1].seconds)
            yield sums_table("module, the slowest first", dict(modules[:_SHOWN]), step.anatomy.whole)
        if step.missing:
            yield Table.of(("not measured", "because"), step.missing.items())

    def values(self) -> dict[str, Any]:
        """Return all figures for programs."""
        step = self.found
        return {**step.model_dump(mode="json"), "flops": dict(step.flops), "tokens_per_second": step.tokens_per_second}

    def frame(self) -> "pandas.DataFrame":
        """Return a row per operator, phase and dtype: count, FLOPs and bytes of one step."""
        import pandas

        return pandas.DataFrame([one.model_dump(mode="json") for one in self.found.operations])

    def figure(self, name: str = "") -> "Figure | None":
        """Return the figure of time by module and class of operator; None if the step was not taken apart."""
        return None if self.found.anatomy is None else AnatomyView(self.found.anatomy).figure()


def _facts(step: OwnStep) -> Iterator[tuple[str, str]]:
    program = step.program
    yield "step", program.title
    yield "calls", f"{' + '.join(program.modules)}, updated by {' + '.join(program.optimizers)}"
    yield "parameters", format_count(program.parameters)
    yield "device", f"{program.device}, {program.threads} threads, torch {program.torch}"
    yield "loss", f"{figure(step.first_loss)} → {figure(step.last_loss)} in {step.steps} steps, all of which trained"
    seconds = step.step_seconds
    spread = (
        f"{format_seconds(seconds.lower)} to {format_seconds(seconds.upper)} for the middle half of {seconds.count}"
    )
    yield "step time", f"{format_seconds(seconds.median)}, {spread} steps in {len(step.blocks)} blocks"
    yield "first step", format_seconds(step.first_step_seconds)
    if step.tokens_per_second is not None:
        yield "tokens/s", format_count(step.tokens_per_second)
    work = " + ".join(f"{format_flops(count)} in {dtype}" for dtype, count in step.flops.items())
    yield "work", work or "no contractions"
    yield "host waits", ", ".join(f"{count} in {phase}" for phase, count in step.synchronizations.items()) or "none"
    if step.last_loss is not None and not isfinite(step.last_loss):
        yield "caution", "the last loss is no finite number, so these steps train nothing"
    disturbed = sum(block.disturbed for block in step.blocks)
    if disturbed:
        yield "caution", f"other programs took processor time in {disturbed} of {len(step.blocks)} blocks"


def _memory(step: OwnStep) -> Table:
    measured = {title: getattr(step.memory, name) for name, title in _MEMORY.items()}
    rows = [(title, format_bytes(nbytes)) for title, nbytes in measured.items() if nbytes is not None]
    return Table.of(("memory", "measured"), rows, ("measured",))


def _parts(step: OwnStep) -> Table:
    """Parts of the peak. Those that the ledger cannot see are inside operators, and close the sum."""
    peak = step.memory.tensors_peak_bytes or 0
    inside = peak - sum(step.peak_parts.values())
    parts = {**step.peak_parts, **({"inside operators": inside} if inside > 0 else {})}
    rows = [(part, format_bytes(nbytes), f"{nbytes / peak:.1%}", "") for part, nbytes in parts.items()]
    last = ("peak of tensors", format_bytes(peak), "100.0%", step.memory.tensors_peak_instant or UNKNOWN)
    return Table.of(("parts of the peak", "bytes", "share", ""), [*rows, last], ("bytes", "share"))


def _operators(step: OwnStep) -> Table:
    """Operators by class, phase and dtype, with the most FLOPs or bytes first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    flops, moved = counts.copy(), counts.copy()
    for one in step.operations:
        key = (one.operation_class, one.phase, one.dtype)
        counts[key] += one.count
        flops[key] += one.flops
        moved[key] += one.bytes
    ordered = sorted(counts, key=lambda key: (-flops[key], -moved[key]))[:_SHOWN]
    rows = [
        (*key, str(counts[key]), format_flops(flops[key]) if flops[key] else UNKNOWN, format_bytes(moved[key]))
        for key in ordered
    ]
    figures = ("operators", "FLOPs", "bytes")
    return Table.of(("class of operator", "phase", "dtype", *figures), rows, figures)
