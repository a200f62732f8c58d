"""Types of the values that views compose for `--json`, from which their JSON schemas are made.

A view that prints a record as it is needs no type here: its schema is that of the record's model.
"""

from collections.abc import Callable, Mapping
from typing import Any, NotRequired

from pydantic import ConfigDict
from typing_extensions import TypedDict  # pydantic asks for it before Python 3.12

from assay.analysis.effects import Resolution, Verdict
from assay.analysis.row import BreakEven, Figure
from assay.estimator.capacity import Largest
from assay.hardware import Machine
from assay.records.anatomy import Operator, Part, Sum
from assay.records.evidence import Evidence, ValueProof
from assay.records.own import OwnStep
from assay.records.prediction import Predicted
from assay.records.ranks import RankResult
from assay.records.run import Environment
from assay.records.status import Status
from assay.records.timing import Outside
from assay.records.trace import OperationClass


class RowPredictionJson(Predicted):
    """The prediction of a row's run; only the changes, if there is none."""

    change: Mapping[str, float]
    """Predicted change of each metric against the baseline, as a fraction."""


def adding_figures(**figures: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Return what adds figures that a record computes to its schema."""

    def add(found: dict[str, Any]) -> None:
        found["properties"] |= figures

    return add


_NUMBER_OR_NULL = {"type": ["number", "null"]}


class RankJson(RankResult):
    """A rank, with the share of a step in which communication ran."""

    model_config = ConfigDict(json_schema_extra=adding_figures(communication_share=_NUMBER_OR_NULL))


class RowJson(TypedDict):
    """One row of a comparison. Changes and intervals are fractions by metric."""

    treatment: str
    label: str
    """Short name for a reader."""
    status: Status
    reason: str | None
    runs: list[str]
    """Ids of the runs, seed by seed."""
    finished: int
    """Number of processes that contribute to the figures."""
    metrics: dict[str, Figure]
    """Figures by metric, losses as one value per seed; null if it was not measured."""
    change: dict[str, float | None]
    interval: dict[str, tuple[float, float] | None]
    predicted: RowPredictionJson
    break_even: BreakEven | None
    """Null if its first step costs no more than the baseline's."""
    host_share: float | None
    """Share of its steps' time in which the host queued them; null on a CPU and in older records."""
    evidence: list[Evidence]
    values: ValueProof | None
    ranks: list[RankJson]
    distinguishable: dict[str, bool | None]
    """Null if the comparison has too few processes to tell."""
    verdict: dict[str, Verdict]
    outside: Outside | None
    flags: list[str]
    """Sentences that warn a reader of the row."""


class AnswerJson(TypedDict):
    """The answer of a study: its rows, and the values of each section."""

    id: str
    rows: list[RowJson]
    baseline: RowJson
    again: RowJson
    """The second runs of the baseline."""
    smallest_change: dict[str, Resolution]
    """Smallest changes that the comparison can tell, by metric."""
    seeds: list[int]
    processes: int
    blocks: int
    caveats: list[str]
    held_back: list[str]
    """Cells that did not begin within the limit of time."""
    environment: Environment | None
    sections: dict[str, Any]
    """Values of each section of the answer, by its name."""
    page: NotRequired[str | None]
    """File of the page; only on standard output."""
    digest: NotRequired[str]
    """Digest of the content; only in `answer.json`."""


class BoundsJson(TypedDict):
    """Two ends of a range of bytes."""

    low: int
    high: int


class BatchJson(TypedDict):
    """The batch of a step."""

    sequences: int
    context: int
    micro_batches: int


class FitJson(TypedDict):
    """A step beside the memory of its device."""

    verdict: str
    need_bytes: BoundsJson
    memory_bytes: int
    batch: BatchJson


class DatasheetJson(TypedDict):
    """A device that is known by its datasheet."""

    device: str
    times_as_long: tuple[float, float]
    """A step's time over its roofline's, from and to."""
    operators_of: NotRequired[str]
    """Device whose operators were measured."""
    host_seconds: NotRequired[float]
    device_seconds: NotRequired[float]


class InstantJson(TypedDict):
    """The memory of one instant of a step."""

    instant: str
    bytes: int


class CommunicationJson(TypedDict):
    """Calls of one collective in a step."""

    collective: str
    axis: str
    payload_bytes: int
    calls: int


class EstimateJson(Predicted):
    """The ledger's prediction of a step; on several ranks, of the rank with the highest peak."""

    peak_parts: dict[str, int]
    """Bytes alive at the peak, by part."""
    requested_peak_bytes: BoundsJson | None
    """None of a captured graph, which requests its own pool once."""
    parameters: int
    active_parameters: int
    adapter_parameters: int
    tokens_per_step: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int
    waiting_batch_bytes: int
    flops_by_dtype: dict[str, int]
    instants: list[InstantJson]
    datasheet: DatasheetJson | None = None
    device_memory: dict[str, BoundsJson | None] | None = None
    """Parts of the memory of a GPU; missing on a CPU."""
    fit: FitJson | None = None
    rank: int | None = None
    """Rank with the highest peak; missing on one rank."""
    communications: tuple[CommunicationJson, ...] = ()


class EstimateRowsJson(TypedDict):
    """Several stacks, each with its prediction."""

    rows: dict[str, EstimateJson]


class StackJson(TypedDict):
    """A stack with its figures; times are null if no device was named."""

    optimizations: str
    tokens_per_second: float | None
    step_seconds: float | None
    step_seconds_margin: float | None
    step_flops: NotRequired[int]
    batch: BatchJson
    timed: bool
    need_bytes: int
    fits: bool
    numerics: str


class PartJson(TypedDict):
    """An element of the recommended stack."""

    element: str
    loss: str
    without: StackJson | None


class VerifiedJson(TypedDict):
    """The study that verified the order of the first stacks."""

    study: str
    step_seconds: dict[str, float]
    order_held: bool | None


class TrainingJson(TypedDict):
    """Time and cost of a training, from and to."""

    tokens: float
    tokens_per_step: int
    step_seconds: float
    seconds: float
    devices: int
    hours: tuple[float, float]
    device_hours: tuple[float, float]
    money: tuple[float, float] | None


# More than 20 fields: they are the keys of one JSON value.
class AdviceJson(TypedDict):
    """The recommended stack of one device, and those beside it."""

    device: str | None
    budget_bytes: int
    of: str
    """Memory that the budget limits."""
    baseline: StackJson
    recommended: StackJson
    command: str
    checked: str
    largest_batch: int | None
    frontier: list[StackJson]
    parts: list[PartJson]
    different_training: list[StackJson]
    candidates: int
    timed: int
    replayed: int
    refused: list[str]
    unearned: list[str]
    unseen: list[str]
    unadvised: list[str]
    warnings: list[str]
    training: TrainingJson | None
    verified: VerifiedJson | None


class LargestJson(Largest):
    """The largest value of one setting, and the measurement of a short run with it."""

    measured_bytes: int | None
    failure: str | None


class CapacityJson(TypedDict):
    """The largest value of each setting within a budget of memory."""

    memory_bytes: int
    of: str
    largest: list[LargestJson]


class MachineJson(Machine):
    """A machine with its rates, and the dtypes in which its CPU multiplies matrices in hardware."""

    model_config = ConfigDict(
        json_schema_extra=adding_figures(native_dtypes={"type": "array", "items": {"type": "string"}})
    )


class MeasureJson(OwnStep):
    """A measured step of a user's own, with its FLOPs by dtype and its tokens per second."""

    model_config = ConfigDict(
        json_schema_extra=adding_figures(
            flops={"type": "object", "additionalProperties": {"type": "integer"}}, tokens_per_second=_NUMBER_OR_NULL
        )
    )


class AnatomyJson(TypedDict):
    """One step by class of operator and by module, then every part."""

    by_class: dict[OperationClass, Sum]
    by_module: dict[str, Sum]
    """Sums by module, with all blocks together."""
    whole: Sum
    parts: list[Part]
    step_seconds: float
    """Time of a step that is not watched, the median of several."""
    watched_seconds: float
    title: str
    evidence: list[Evidence]
    operators: list[Operator]
    """Operators of one more step, in their order; empty unless a trace was asked for."""
