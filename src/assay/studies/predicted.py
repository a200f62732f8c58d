"""A study of which every row is predicted on one GPU that may be absent; nothing is trained.

Each row is one estimate of a step, the same that `assay estimate --device` prints. A row that the device cannot run has
the reason. A comparison also predicts every pair of its treatments, so that their deviation from additivity is known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from assay.config.run import ResolvedRun, Run
from assay.errors import UsageError
from assay.estimator import Estimate
from assay.estimator.every_rank import estimate_every_rank
from assay.hardware import Machine
from assay.records.published import PublishedStudy
from assay.records.study import BASELINE
from assay.studies.base import Study
from assay.studies.design import Treatment
from assay.studies.factors import Factor
from assay.studies.kinds.comparison import ComparisonStudy

_MOST_PAIRED = 8
"""Most treatments of which every pair is predicted."""

Vocabulary = Callable[[ResolvedRun], ResolvedRun]
"""Returns a run with the size of its vocabulary, which may need its text."""


@dataclass(frozen=True)
class PredictedRow:
    """One row of a study, predicted."""

    label: str
    levels: Mapping[str, str]
    found: Estimate | None = None
    """None if it cannot run on the device or cannot be predicted."""
    problem: str = ""
    """Why there is no estimate."""
    paired: bool = False
    """True for two treatments together that the caller did not name."""


@dataclass(frozen=True)
class PredictedStudy:
    """A whole study, predicted on one GPU that may be absent."""

    device: str
    """Name of the device, as `--device` takes it."""
    machine: Machine
    name: str
    kind: str
    question: str
    base: str
    factors: tuple[Factor, ...]
    rows: tuple[PredictedRow, ...]
    """The control first."""
    notes: tuple[str, ...]
    context: tuple[str, ...]
    """Factors that are no choice: rows are ranked at each of their levels."""
    published: PublishedStudy | None

    @property
    def named(self) -> tuple[PredictedRow, ...]:
        """The rows of the study, without pairs that were added."""
        return tuple(row for row in self.rows if not row.paired)

    @property
    def known(self) -> dict[str, Estimate]:
        """Estimates by row, the control first."""
        return {row.label: row.found for row in self.rows if row.found is not None}


def predicted_study(study: Study, base: Run, device: str, machine: Machine, vocabulary: Vocabulary) -> PredictedStudy:
    """Predict every row of a study on the one GPU of a machine; `base` runs on that device.

    Raises `UsageError` for a fault of the design, and if the control cannot be predicted.
    """
    if base.ranks > 1:
        raise UsageError(f"a device is one GPU, and the study has ranks={base.ranks}; predict it with ranks=1")
    stated = {level for factor in study.factors() for level in factor.levels}
    paired = _with_pairs(study)
    rows, seen, factors = list[PredictedRow](), list[Treatment](), paired.by_key()
    for levels in paired.combinations():
        row = _row(paired, base, levels, factors, seen, machine, vocabulary)
        if not rows and row.found is None:
            raise UsageError(f"the control cannot be predicted: {row.problem}")
        rows.append(replace(row, paired=not stated.issuperset(levels.values())))
    if len(rows) < 2:
        raise UsageError(f"the study {study.kind!r} has nothing to compare with its control; add levels")
    return PredictedStudy(
        device=device,
        machine=machine,
        name=study.name,
        kind=study.kind,
        question=study.question,
        base=study.base,
        factors=study.factors(),
        rows=tuple(row for row in rows if not row.paired or row.found is not None),
        notes=(*study.notes(), *study.idle()),
        context=study.context,
        published=study.published,
    )


def _with_pairs(study: Study) -> Study:
    """Return a comparison with every pair of its treatments, as far as these are few; another study as it is."""
    if not isinstance(study, ComparisonStudy) or len(study.treatments) > _MOST_PAIRED:
        return study
    known = {frozenset(one.split("+")) for one in study.treatments}
    pairs = []
    for one, other in combinations(study.treatments, 2):
        parts = frozenset(one.split("+")) | frozenset(other.split("+"))
        if parts not in known:
            known.add(parts)
            pairs.append(f"{one}+{other}")
    return study.model_copy(update={"treatments": (*study.treatments, *pairs)})


def _row(
    study: Study,
    base: Run,
    levels: Mapping[str, str],
    factors: Mapping[str, Factor],
    seen: list[Treatment],
    machine: Machine,
    vocabulary: Vocabulary,
) -> PredictedRow:
    """Return one row, predicted, or the reason why it is not."""
    label = study.label(levels) if seen else BASELINE
    try:
        one = study.row(base, levels, factors, seen)
        seen.append(one)
        found = estimate_every_rank(vocabulary(one.run), machine).fullest
        if found.run.ranks > 1:
            raise UsageError(f"a device is one GPU, and this row has ranks={found.run.ranks}")
        return PredictedRow(label, levels, found)
    except UsageError as reason:
        return PredictedRow(label, levels, problem=str(reason))
