"""Analysis of a comparison: one row per treatment, the smallest change that it can tell, and caveats for the reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from assay.analysis.caveats import (
    caveats,
    comparable_times,
    ended_claims,
    environment_flags,
    equal_flags,
    evidence_flags,
    outside_of,
    peak_flags,
    same_environment,
    twin_flags,
    wide_flags,
)
from assay.analysis.effects import (
    CONTROLS,
    Effect,
    Resolution,
    Timed,
    judge_exact,
    judge_sampled,
    rounds,
    timed_changes,
)
from assay.analysis.factors.layout import row_names
from assay.analysis.losses import Yardstick, check_promise, loss_resolution
from assay.analysis.metrics import metrics
from assay.analysis.metrics.standard import STEP_SECONDS, VAL_LOSS
from assay.analysis.row import Figure, Row, effects, figures, repaid, row_columns, row_json, usable
from assay.config.base import Frozen
from assay.config.run import ResolvedRun
from assay.records.evidence import ValueProof
from assay.records.prediction import Predicted
from assay.records.run import Environment, RunResult
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord, StudyEnding
from assay.records.timing import host_share

if TYPE_CHECKING:
    import pandas


class Comparison(Frozen):
    """Results of a comparison."""

    record: ComparisonRecord
    baseline: Row
    again: Row
    """Row of the second baseline."""
    resolution: Mapping[str, Resolution]
    """Smallest change that the comparison can tell, by timed metric and for the validation loss."""
    rows: tuple[Row, ...]
    """One row per treatment, in the order of listing."""
    environment: Environment | None
    """Environment of the baseline."""
    caveats: tuple[str, ...]
    """Sentences on the comparison as a whole."""

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Short name of each row for a reader, by its treatment."""
        return {row.treatment: row.label for row in (self.baseline, self.again, *self.rows)}

    @property
    def run(self) -> ResolvedRun:
        """A run of the comparison, with what its preparation found; the base, if there is no cell."""
        return self.record.cells[0].cell.run if self.record.cells else self.record.base

    @property
    def failed(self) -> bool:
        """True if a cell failed or a row has wrong values; running out of memory and diverging are results."""
        cells, rows = self.record.cells, (self.again, *self.rows)
        return any(status.failure for status in (*(one.result.status for one in cells), *(row.status for row in rows)))

    @property
    def interrupted(self) -> bool:
        """True if the comparison was stopped before its end."""
        return self.record.ending is StudyEnding.INTERRUPTED

    def to_frame(self) -> "pandas.DataFrame":
        """Return a data frame with a row per treatment, the two baselines first.

        Columns are `treatment`, `status`, `reason` and each metric in its base unit (losses as their mean over seeds).
        Each metric also has `…_change`, `…_low`, `…_high` (fractions, NaN if there is none) and `…_verdict`. Then
        follow `predicted_…` and `predicted_…_change`, `evidence` and `flags` as text.
        """
        import pandas

        return pandas.DataFrame([row_columns(row) for row in (self.baseline, self.again, *self.rows)])

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "id": self.record.id,
            "rows": [row_json(row) for row in self.rows],
            "baseline": row_json(self.baseline),
            "again": row_json(self.again),
            "smallest_change": {name: one.model_dump(mode="json") for name, one in self.resolution.items()},
            "seeds": list(self.record.seeds),
            "processes": self.record.protocol.processes,
            "blocks": self.record.protocol.blocks,
            "caveats": list(self.caveats),
            "held_back": [one.name for one in self.record.held_back],
            "environment": self.environment.model_dump(mode="json") if self.environment else None,
        }


def analyse(record: ComparisonRecord) -> Comparison:
    """Analyse a record. The function is pure: the same record gives the same comparison."""
    first = record.of(BASELINE)
    environment = next(
        (one.result.provenance.environment for one in usable(first) if one.result.provenance.environment), None
    )
    read = _Reading.of(record, environment)
    again, yardstick = read.row(AGAIN), Yardstick.of(record)

    def row(name: str) -> Row:
        cells = record.of(name)
        kept = check_promise(_judged(read.row(name), again), same_environment(cells, environment), yardstick)
        return _flagged(kept, cells, (*equal_flags(usable(cells), yardstick), *twins[name]))

    def smallest_changes(rows: Sequence[Row]) -> dict[str, Resolution]:
        known = {name: one.resolution for name, one in read.timed.items()}
        told = [one.effects[VAL_LOSS.name] for one in rows if VAL_LOSS.name in one.effects]
        known[VAL_LOSS.name] = loss_resolution(told, len(record.treatments))
        return {name: one for name, one in known.items() if one is not None}

    twins = twin_flags({name: usable(record.of(name)) for name in record.treatments})
    rows = tuple(row(name) for name in record.treatments)
    return Comparison(
        record=record,
        baseline=read.row(BASELINE),
        again=check_promise(_judged(again, again), same_environment(record.of(AGAIN), environment), yardstick),
        resolution=smallest_changes(rows),
        rows=rows,
        environment=environment,
        caveats=tuple(caveats(record, again, yardstick, read.ended)),
    )


@dataclass(frozen=True)
class _Reading:
    """Values that all rows of a comparison share."""

    record: ComparisonRecord
    environment: Environment | None
    kept: Mapping[int, Sequence[int]]
    """Rounds that count, by wave."""
    timed: Mapping[str, Timed]
    """Timed metrics by name."""
    ended: Mapping[str, Sequence[str]]
    """Rows whose times are not compared, and why."""
    names: Mapping[str, str]

    @classmethod
    def of(cls, record: ComparisonRecord, environment: Environment | None) -> Self:
        good = usable(record.cells)
        kept, ended = rounds(good, record.rounds), ended_claims(record)
        alike = same_environment(good, environment)
        known = (one for one in metrics().values() if one.kind == "timed" and record.measures(one.unit))
        found = {one.name: timed_changes(one, comparable_times(one, alike, ended), kept) for one in known}
        return cls(record, environment, kept, found, ended, row_names(record))

    def row(self, treatment: str) -> Row:
        """Return the row of a treatment or a baseline."""
        record, cells = self.record, self.record.of(treatment)
        comparable = same_environment(cells, self.environment)
        results = [one.result for one in cells]
        status, reason = _ending(results, record)
        good = [one.result for one in usable(cells)]
        predicted = next((result.predicted for result in results if result.predicted), None)
        reference = next((one.result.predicted for one in record.of(BASELINE) if one.result.predicted), None)
        treated = treatment in record.treatments
        changes = {} if treatment == BASELINE else self._effects(treatment, comparable)
        return Row(
            treatment=treatment,
            label=self.names[treatment],
            status=status,
            reason=reason,
            runs=tuple(result.run for result in results),
            planned=record.planned,
            finished=len(good),
            metrics=self._figures(treatment),
            effects=changes,
            break_even=repaid(record.of(BASELINE), comparable, self.kept, changes.get(STEP_SECONDS.name))
            if treated and self._has_times(BASELINE, treatment)
            else None,
            host_share=host_share(block for one in comparable for block in one.result.speed.blocks),
            predicted=predicted,
            predicted_change=_predicted_change(reference, predicted, _two_runs(record, cells)) if treated else {},
            evidence=(good or results)[0].proof.evidence if results else (),
            values=_values(results),
            proven_until=(good or results)[0].proof.proven_until if results else None,
            ranks=(good or results)[0].ranks if results else (),
            outside=outside_of(record, treatment),
            flags=self._flags(treatment, results),
        )

    def _flags(self, treatment: str, results: Sequence[RunResult]) -> tuple[str, ...]:
        unlike = (flag for result in results for flag in environment_flags(self.record, result, self.environment))
        return tuple(dict.fromkeys((*unlike, *self.ended.get(treatment, ()))))

    def _has_times(self, *treatments: str) -> bool:
        """True if cells took turns, and the times of these rows may be compared."""
        return self.record.timed and not any(name in self.ended for name in treatments)

    def _figures(self, treatment: str) -> dict[str, Figure]:
        """Return the figures of a row; its times are None if cells ran beside each other, or its claim has ended.

        The baseline's times are over both of its runs.
        """
        cells = self.record.of(treatment)
        controls = [
            one for one in self.record.cells if one.cell.treatment in CONTROLS and self._has_times(one.cell.treatment)
        ]
        lost = treatment in self.ended
        missing = {
            name: None
            for name, one in metrics().items()
            if one.kind == "timed" and (name not in self.timed or (lost and one.unit != "bytes"))
        }
        return figures(cells, controls if treatment == BASELINE else cells, self.kept) | missing

    def _effects(self, treatment: str, alike: Sequence[CellResult]) -> dict[str, Effect]:
        sampled = {name: one.effects[treatment] for name, one in self.timed.items() if treatment in one.effects}
        second = self.record.of(AGAIN) if treatment != AGAIN else ()
        return sampled | effects((*self.record.references, *second), alike, len(self.record.treatments))


def _ending(results: Sequence[RunResult], record: ComparisonRecord) -> tuple[Status, str | None]:
    """Status and reason of the first result that is not `done`; if processes are missing, why they did not run.

    A limit of time holds cells back by their order and never by their results. So a row of which some processes ran is
    as good as one of a smaller study.
    """
    worst = next((result for result in results if result.status is not Status.DONE), None)
    if worst is not None:
        return worst.status, worst.reason
    if len(results) == record.planned:
        return Status.DONE, None
    if results and record.ending is StudyEnding.BUDGET_REACHED:
        return Status.BUDGET_REACHED, "the limit of time ended the study"
    return Status.INTERRUPTED, "not all processes ran" if results else "no process ran"


def _judged(row: Row, again: Row) -> Row:
    same, known = row.treatment == AGAIN, metrics()
    verdicts = {
        name: judge_exact(effect, again.effects.get(name))
        if known[name].kind == "exact"
        else judge_sampled(effect, same=same)
        for name, effect in row.effects.items()
    }
    return row.model_copy(update={"verdicts": verdicts})


def _flagged(row: Row, cells: Sequence[CellResult], suspect: Sequence[str]) -> Row:
    results = [one.result for one in usable(cells)]
    found = (*suspect, *wide_flags(results), *evidence_flags(results), *peak_flags(results))
    return row.model_copy(update={"flags": (*row.flags, *found)})


def _two_runs(record: ComparisonRecord, cells: Sequence[CellResult]) -> tuple[ResolvedRun, ResolvedRun] | None:
    """Run of the baseline and run of these cells; None if either is missing."""
    references = record.references
    return (references[0].cell.run, cells[0].cell.run) if references and cells else None


def _values(results: Sequence[RunResult]) -> ValueProof | None:
    """Return the value check of a row: that of its first run, or of the first in which something was not right."""
    checks = [result.proof.values for result in results if result.proof.values is not None]
    return next((one for one in checks if not one.verdict), checks[0] if checks else None)


def _predicted_change(
    before: Predicted | None, after: Predicted | None, runs: tuple[ResolvedRun, ResolvedRun] | None
) -> dict[str, float]:
    if before is None or after is None or runs is None:
        return {}
    known = metrics()
    pairs = {name: (getattr(before, name), getattr(after, name)) for name, one in known.items() if one.predicted}
    found = {name: new / old - 1 for name, (old, new) in pairs.items() if old and new is not None}
    if (step := found.get(STEP_SECONDS.name)) is not None:
        rates = {name: one.per_step for name, one in known.items() if one.per_step is not None}
        found |= {name: of(runs[1]) / of(runs[0]) / (1 + step) - 1 for name, of in rates.items()}
    return found
