"""Sentences below the table of a comparison: the method of its intervals, its smallest change, and caveats."""

from collections import Counter
from collections.abc import Mapping

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.time import STEP_SECONDS
from assay.analysis.row import seeds_of
from assay.proofs.mispredicted import differing_text
from assay.records.study import BASELINE
from assay.report.wording import columns, fine_percent, prediction_error
from assay.units import format_bytes


def footnotes(comparison: Comparison) -> list[str]:
    """Return all footnotes: method, smallest change, predictions with errors and load, missing figures, caveats."""
    untold = (_traced(comparison), _unpredicted(comparison))
    errors = (_prediction_errors(comparison), _differing_blocks(comparison))
    predicted = (*untold, *errors, _predicted_under_load(comparison))
    measured = (_smallest_change(comparison), *predicted, _scratch(comparison), _missing(comparison))
    found = [_method(comparison), _evaluated_on(comparison), *measured]
    return [sentence for sentence in (comparison.record.started_from, *found, *comparison.caveats) if sentence]


def _method(comparison: Comparison) -> str:
    record = comparison.record
    each = f", {record.protocol.blocks} interleaved blocks in each" if record.timed else ""
    return (
        f"Changes are relative to both runs of the baseline ({size(comparison)}{each}). Brackets are "
        "intervals in percent over processes; all intervals of a column hold together in 95 % of comparisons."
    )


def _evaluated_on(comparison: Comparison) -> str:
    """Sentence on the part of the held-out text that losses are measured on; empty if it is all of it."""
    parts = {one.cell.treatment: one.cell.run.data.evaluate_on for one in comparison.record.cells}
    if set(parts.values()) == {"held-out"}:
        return ""
    if len(set(parts.values())) == 1:
        return f"Validation losses are those of the {next(iter(parts.values()))} split."
    return f"Validation losses are those of different texts, and cannot be compared: {listed(parts)}."


def size(comparison: Comparison) -> str:
    """Return ``"3 processes per row over 3 seeds"``, or ``"at most 1 of 3 …"`` if no row has more that finished."""
    planned = comparison.record.planned
    most = max(row.finished for row in (comparison.baseline, comparison.again, *comparison.rows))
    part = "" if most == planned else f"at most {most} of "
    return f"{part}{planned} process{'es' if planned > 1 else ''} per row over {seeds(comparison)}"


def seeds(comparison: Comparison) -> str:
    """Return ``"3 seeds"``, or ``"2 of 3 seeds"`` if the baseline, which every change is against, finished at two."""
    planned = len(comparison.record.seeds)
    finished = len(seeds_of(comparison.record.of(BASELINE)))
    return f"{'' if finished == planned else f'{finished} of '}{planned} seed{'s' if planned > 1 else ''}"


def _smallest_change(comparison: Comparison) -> str:
    """Sentence on the smallest change of each timed metric but rates, and of the loss, that can be told from none."""
    titles = {metric.name: metric.title for metric in columns(comparison.run) if metric.per_step is None}
    parts = [
        f"{titles[name]} {100 * one.told:.2g} % "
        f"(a true change of {100 * one.likely:.2g} % is found in four of five comparisons)"
        for name, one in comparison.resolution.items()
        if name in titles
    ]
    if not parts:
        return (
            ""
            if not comparison.record.timed
            else "Too few processes for intervals of times: give more --seeds or --processes."
        )
    step = comparison.resolution.get(STEP_SECONDS.name)
    deviation = (
        f" Step times of equal processes deviate by {100 * step.deviation:.2g} % ({step.degrees} degrees of freedom)."
        if step
        else ""
    )
    return f"Smallest change that can be distinguished from none: {'; '.join(parts)}.{deviation}"


def _traced(comparison: Comparison) -> str:
    """Sentence on traced predictions; empty if there are none."""
    if not any(row.predicted and row.predicted.traced for row in (comparison.baseline, *comparison.rows)):
        return ""
    return "A traced peak is that of the program itself on tensors that have shapes and no memory."


def _unpredicted(comparison: Comparison) -> str:
    """Sentence on the rows of which nothing is predicted, each with the reason; empty if there are none."""
    rows = (comparison.baseline, *comparison.rows)
    told = {row.treatment: row.predicted.refused for row in rows if row.predicted and row.predicted.refused}
    return f"Not predicted: {listed(told)}." if told else ""


def _prediction_errors(comparison: Comparison) -> str:
    errors = {row.treatment: prediction_error(row) for row in (comparison.baseline, *comparison.rows)}
    told = {name: fine_percent(error) for name, error in errors.items() if error is not None}
    return f"Error of the predicted peak of tensors: {listed(told)}." if told else ""


def _differing_blocks(comparison: Comparison) -> str:
    """Sentence on the blocks by which measured peaks differ, on a GPU; empty if none do."""
    told: dict[str, str] = {}
    for one in comparison.record.cells:
        predicted, measured = one.result.predicted, one.result.memory.peak_blocks
        if predicted is not None and (text := differing_text(measured, predicted.peak_blocks)):
            told.setdefault(one.cell.treatment, text)
    return f"Against its prediction, a measured peak has: {listed(told)}." if told else ""


def _predicted_under_load(comparison: Comparison) -> str:
    found = [one.result.predicted for one in comparison.record.cells]
    if not any(one is not None and one.under_load for one in found):
        return ""
    return "Other programs worked while steps were timed for the predictions, so these have wider margins."


def _scratch(comparison: Comparison) -> str:
    """Sentence on the rows in which a library took scratch; empty if there are none."""
    taken = {row.treatment: row.metrics.get("library_scratch_bytes") for row in (comparison.baseline, *comparison.rows)}
    told = {name: format_bytes(most) for name, most in taken.items() if isinstance(most, int) and most}
    if not told:
        return ""
    return f"Peak of library scratch from torch's allocator, which is not part of the tensors: {listed(told)}."


def _missing(comparison: Comparison) -> str:
    """Sentence on the columns that the system of some run does not tell; empty if there are none."""
    told = {
        metric.title: reason
        for one in comparison.record.cells
        for name, reason in one.result.missing.items()
        for metric in columns(comparison.run)
        if metric.name == name.rpartition(".")[2]
    }
    return f"Not measured: {'; '.join(f'{title} ({reason})' for title, reason in told.items())}." if told else ""


def listed(told: Mapping[str, str]) -> str:
    """Return the text of each row; a text that more than four rows share is said once."""
    counts = Counter(told.values())
    if len(counts) == 1 and len(told) > 1:
        return f"{next(iter(counts))} in each of {len(told)} rows"
    shared = {text for text, count in counts.items() if count > _MANY}
    parts = [f"{name} {text}" for name, text in told.items() if text not in shared]
    return "; ".join([*parts, *(f"{text} in each of {counts[text]} other rows" for text in counts if text in shared)])


_MANY = 4
