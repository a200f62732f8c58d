"""Figures of a training step of a user's own, as plain data, and its proof against a baseline of the user's.

A figure that was not measured is None, and `missing` has the reason by the figure's name.
"""

from collections import Counter
from collections.abc import Mapping

from pydantic import Field

from assay.records.anatomy import Anatomy
from assay.records.base import Record
from assay.records.evidence import ValueProof
from assay.records.prediction import Memory
from assay.records.status import Exit, Status
from assay.records.timing import Block, Quartiles
from assay.records.trace import OperationClass, TracedMemory, TracedOperation

UNTRAINABLE = "untrainable"
"""Key of the fault of a model whose loss trains nothing, in the place of its traced peak."""


class TracedPeak(Record):
    """Highest instant of one optimizer step, in which the optimizer's state exists."""

    parameters: int
    """Number of elements of all distinct parameters."""
    peak_bytes: int
    """Highest sum of tensors alone."""
    instant: str
    """Phase and operator of the instant that `parts` describes."""
    parts: Mapping[str, int]
    """Bytes of each part of the peak; saved tensors by the class of the module that made them. On a CPU they sum to
    `peak_bytes`, on a GPU to what was requested."""


OTHERS = "other tensors"
"""Part of a peak that was alive before the step, and that nothing of the step owns."""


class OwnProgram(Record):
    """Description of the step and of the machine that ran it."""

    title: str
    device: str
    torch: str
    """Version of torch."""
    threads: int
    """Threads of a CPU's kernels."""
    parameters: int
    """Number of elements of the distinct parameters of the modules."""
    modules: tuple[str, ...]
    """Classes of the modules that the step called."""
    optimizers: tuple[str, ...]
    """Classes of the optimizers that made a step."""
    tokens: int | None = None
    """Tokens of a step, if they were stated, or counted by its loss."""


class OwnStep(Record):
    """One training step: its peak of tensors, its operators, its times, and its parts."""

    program: OwnProgram
    steps: int
    """Number of steps that were made, each of which trained the model."""
    first_loss: float | None = None
    last_loss: float | None = None
    """Losses that the first and the last step returned; None if they returned no number."""
    first_step_seconds: float
    step_seconds: Quartiles
    """Seconds of the timed steps, which were not watched."""
    blocks: tuple[Block, ...]
    memory: Memory
    """Peaks. That of tensors includes all tensors that were alive before the step."""
    peak_parts: Mapping[str, int]
    """Bytes of each part of the peak. They sum to slightly less, because the ledger does not see inside operators."""
    held: TracedMemory
    """Bytes of parameters, gradients, optimizer state and saved tensors, by the trace."""
    forwards: int
    """Number of forwards of the last module that kept gradients."""
    operations: tuple[TracedOperation, ...]
    synchronizations: Mapping[str, int]
    """Number of times by phase that the host waited for the device."""
    anatomy: Anatomy | None = None
    missing: Mapping[str, str] = Field(default_factory=dict)
    """Reason of each figure that is None."""
    proof: "OwnProof | None" = None
    """Proof of the step's change against a baseline; None if none was named."""

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of a second of the median step; None if they were not stated."""
        return None if self.program.tokens is None else self.program.tokens / self.step_seconds.median

    @property
    def own_peak_bytes(self) -> int | None:
        """Peak of tensors without those that neither the step made nor its model owns, such as another step's model."""
        peak = self.memory.tensors_peak_bytes
        return None if peak is None else peak - self.peak_parts.get(OTHERS, 0)

    @property
    def flops(self) -> Mapping[str, int]:
        """FLOPs of contractions by dtype, in the whole step."""
        found: dict[str, int] = {}
        for one in self.operations:
            if one.flops:
                found[one.dtype] = found.get(one.dtype, 0) + one.flops
        return found


class OperatorCount(Record):
    """Executions of one operator in a step and in its baseline, of one phase and dtype."""

    name: str
    operation_class: OperationClass
    phase: str
    dtype: str
    baseline: int
    count: int


class OwnProof(Record):
    """Proof of a step against a baseline: its values, its operators, its peak."""

    baseline: OwnStep
    values: ValueProof
    operators: tuple[OperatorCount, ...]
    """Operators whose number of executions differs. The largest differences are first, and movements of data last."""
    status: Status
    """`done`, `wrong_values`, or `no_effect` if nothing about the step differs but its time.

    It says nothing of values that could not be compared; `verdict` does."""

    @property
    def verdict(self) -> str:
        """The status in words, or ``not proven`` if values could not be compared and the step differs."""
        return "not proven" if self._unproven else self.status.value.replace("_", " ")

    @property
    def exit_code(self) -> int:
        """Exit code of the command: a step of which nothing wrong is known, and nothing proven, has one of its own."""
        return int(Exit.UNMET) if self._unproven else self.status.exit_code

    @property
    def _unproven(self) -> bool:
        return self.status is Status.DONE and not self.values.checked

    @classmethod
    def of(cls, step: OwnStep, baseline: OwnStep, values: ValueProof) -> "OwnProof":
        """Compare two measured steps."""
        here, there = _counts(step), _counts(baseline)
        differing = [
            OperatorCount(
                name=key[0], operation_class=key[1], phase=key[2], dtype=key[3], baseline=there[key], count=here[key]
            )
            for key in {**there, **here}
            if here[key] != there[key]
        ]
        differing.sort(
            key=lambda one: (one.operation_class == "movement", -abs(one.count - one.baseline), one.name, one.phase)
        )
        same = not differing and (step.own_peak_bytes, step.held) == (baseline.own_peak_bytes, baseline.held)
        status = Status.NO_EFFECT if same else Status.DONE
        if values.checked and not values.verdict:
            status = Status.WRONG_VALUES
        return cls(baseline=baseline, values=values, operators=tuple(differing), status=status)


OwnStep.model_rebuild()  # it has a proof, which has a step


def _counts(step: OwnStep) -> Counter[tuple[str, OperationClass, str, str]]:
    found: Counter[tuple[str, OperationClass, str, str]] = Counter()
    for one in step.operations:
        if one.name.startswith("profiler."):  # torch's optimizers mark their steps for its profiler
            continue
        found[one.name, one.operation_class, one.phase, one.dtype] += one.count
    return found
