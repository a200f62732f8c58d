"""Types of the values that verbs print with `--json` for machines that may be absent: plan, inference, cost, mesh."""

from typing import NotRequired

from pydantic import ConfigDict
from typing_extensions import TypedDict  # pydantic asks for it before Python 3.12

from assay.estimator.inference import Decoding
from assay.hardware.devices import Device
from assay.report.schema import BatchJson, FitJson, TrainingJson, adding_figures


class DegreesJson(TypedDict):
    """Number of parts along each axis of a mesh."""

    pp: int
    dp: int
    cp: int
    tp: int


class LayoutJson(TypedDict):
    """Division of a batch and of what each rank keeps."""

    batch: int
    """Sequences of a step, over all ranks."""
    micro_batch: int
    schedule: str
    chunks: int
    zero: int
    sequence_parallel: bool
    recompute: str
    dealt: list[int]
    """Layers of each stage; empty if equally many."""


class HeldJson(TypedDict):
    """Planned bytes of a rank, by kind."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    loss: float


class FullestJson(HeldJson):
    """Planned bytes of the ranks that hold most, and their sum."""

    total: float


class StageJson(HeldJson):
    """Planned bytes of a rank of one pipeline stage, and its parameters."""

    parameters: float


class SentJson(TypedDict):
    """Bytes that a rank sends along an axis, and the link that carries them."""

    bytes: float
    link: str
    bandwidth_bytes: float
    inside_node: bool


# More than 20 fields: they are the keys of one JSON value.
class PlanJson(TypedDict):
    """A step on machines that may be absent."""

    gpu: str
    gpu_memory_bytes: int
    peak_flops: float
    products_flops: float
    """FLOP/s that large products reach, with which steps are planned."""
    nodes: int
    gpus_per_node: int
    optimizations: list[str]
    parameters: int
    mesh: DegreesJson
    layout: LayoutJson
    micro_batches: int
    fullest_stage: int
    rank_bytes: FullestJson
    fits: bool
    stages: list[StageJson]
    sent: dict[str, SentJson]
    """Traffic by axis; joined axes have a plus sign between them."""
    bubble_by_formula: float | None
    """Null if no share of a step is published for the schedule."""
    bubble_played: float
    step_seconds: float
    tokens_per_step: int
    tokens_per_second: float
    executed_flops: float
    """FLOP/s of a device, recomputation included."""
    mfu: float
    hfu: float
    training_tokens: int
    training_seconds: float
    training: TrainingJson


class DecodingJson(Decoding):
    """Some sequences on one device, and the tokens per second of all together."""

    model_config = ConfigDict(json_schema_extra=adding_figures(tokens_per_second={"type": "number"}))


class LimitsJson(TypedDict):
    """Limits of generation with weights of one size."""

    compute_bound_sequences: float | None
    compute_bound_sequences_full: float | None
    """Sequences with a full context; null if reading caches always limits it."""
    outgrown_tokens: float


class InferenceJson(TypedDict):
    """Memory and speed of generation on one device."""

    device: Device
    bits: int
    weights_bytes: dict[str, int]
    """Bytes of all weights, by the bits of a weight."""
    cache_bytes_per_token: int
    compute_bound_sequences: float | None
    compute_bound_tokens: float | None
    """Null if products limit sequences of any length."""
    outgrown_tokens: float
    rows: list[DecodingJson]
    by_context: list[DecodingJson]
    by_bits: dict[str, LimitsJson]


class CostJson(TypedDict):
    """Hours, energy and money of a training."""

    device: Device
    devices: int
    mfu: float
    price: float | None
    tokens: float
    stack: str
    """Techniques of the predicted step, as a user writes them."""
    assumed: bool
    training: TrainingJson | None
    """Null if the MFU was given, or is assumed."""
    batch: BatchJson | None
    fit: FitJson | None
    mfu_between: tuple[float, float]
    flops: dict[str, float]
    """FLOPs of the whole training, by convention."""
    seconds: float
    device_hours: float
    kilowatt_hours: float | None
    money: float | None


class RankPlaceJson(TypedDict):
    """Place of a rank in a mesh."""

    rank: int
    pp: int
    dp: int
    cp: int
    tp: int
    node: NotRequired[int]


class GroupsJson(TypedDict):
    """Groups of ranks of each axis."""

    pp: list[list[int]]
    dp: list[list[int]]
    cp: list[list[int]]
    tp: list[list[int]]


class InsideJson(TypedDict):
    """Whether every group of an axis is within one node."""

    pp: bool
    dp: bool
    cp: bool
    tp: bool


class MeshJson(TypedDict):
    """The ranks of a mesh and their groups."""

    world: int
    degrees: DegreesJson
    ranks: list[RankPlaceJson]
    groups: GroupsJson
    nodes: NotRequired[list[list[int]]]
    """Ranks of each node; only with `--ranks-per-node`, as `inside_node` is."""
    inside_node: NotRequired[InsideJson]
