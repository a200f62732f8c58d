"""The record of one run, which is the schema of `result.json`, of the store's rows and of ``--json``.

Every figure is in a base unit that its name states. `None` means that the figure is not available, never zero.

No process of assay writes a figure that cannot be, and whoever reads a record must not believe it. JSON has no NaN and
no infinity, but readers of Python take both, and a number such as 1e999 is read as infinite. A figure that was not
finite is null in a record, or a text where the record's own class says so.
"""

# More than 400 lines: one record, whose fields are a schema that other programs read.
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import list_schema

from assay.config.run import ResolvedRun
from assay.errors import short_text
from assay.records.base import Record
from assay.records.events import RouterLayer
from assay.records.evidence import Evidence, ValueProof
from assay.records.gradients import GradientProbe, ModuleGradient
from assay.records.prediction import Memory, Predicted
from assay.records.ranks import RankResult
from assay.records.status import Status
from assay.records.timing import Between, Block, Quartiles


class Environment(Record):
    """Surroundings that decide a figure. Results from different environments are never compared without a warning."""

    assay: str
    torch: str
    python: str
    device: str
    processor: str
    cores: int
    threads: int
    """Threads for CPU kernels, summed over ranks."""
    memory_bytes: int
    accelerator: str | None = None
    driver: str | None = None
    corpus_digest: str | None = None
    packages: Mapping[str, str] = Field(default_factory=dict)
    pinned: tuple[int, ...] = ()
    """Numbers of the cores to which the run was pinned; empty if it was not."""
    instruction_set: str | None = None
    """Newest instruction set that the CPU's kernels use; None in records older than this field."""

    def differs(self, other: "Environment") -> list[str]:
        """Names of the fields in which two environments differ."""
        return [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]


class SampledText(Record):
    """A short text that the trained model wrote when its run had ended."""

    prompt: str
    text: str
    """The continuation of the prompt, at most 200 characters."""
    temperature: float
    seed: int


class _Sparse(Record):
    """A record that writes only the fields that were given; those of a later version stay in it."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="null")

    @model_serializer(mode="wrap")
    def _given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}


class Branch(Record):
    """The checkpoint of another run with which a run began."""

    run: str
    """Id of the other run."""
    step: int
    """Number of steps that were done."""


class TraceSummary(_Sparse):
    """Summary of the traced step."""

    contractions: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)
    """Number of contractions of each dtype, by phase."""
    flops: Mapping[str, int] = Field(default_factory=dict)
    """FLOPs of each phase."""
    forwards: int = 0
    saved_bytes: Mapping[str, int] = Field(default_factory=dict)
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_state_bytes: int = 0
    shared_parameters: tuple[tuple[str, ...], ...] = ()
    synchronizations: Mapping[str, int] = Field(default_factory=dict)
    """Number of reads of each kind in which the host waited for the device."""


class Extra(_Sparse):
    """Facts that only some runs have."""  # as JSON nests them; in Python they are fields of groups

    trace: TraceSummary | None = None
    routers: tuple[RouterLayer, ...] = ()
    """Routing statistics of each layer between the last two evaluations."""
    loss_scale: float | None = None
    """Loss scale of the last step, if losses are scaled."""
    counters: Mapping[str, int] = Field(default_factory=dict)
    """Number of steps and of evaluations whose rows were held against the slow rule."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


class _Group(Record):
    """Fields of a run that one instrument finds. Figures that are not finite are null in JSON, and read as None."""

    model_config = ConfigDict(ser_json_inf_nan="null")


class Loss(_Group):
    """Losses of a run, and the gradients that led there."""

    train_loss: float | None = None
    """Loss of the last step, averaged over its tokens."""
    loss_spread: float | None = None
    """Standard deviation of the training losses of the last tenth of the steps about their least-squares line."""
    gradients: tuple[ModuleGradient, ...] = ()
    """Scale of each module's gradient and weights, in a discarded step after the last one; empty on several ranks."""
    gradient_probe: GradientProbe | None = None
    """Agreement of the gradients of micro-batches after the last step; None unless `training.gradient_probe` asks."""
    val_loss: float | None = None
    val_perplexity: float | None = None
    val_bits_per_byte: float | None = None
    val_targets: int | None = None
    """Number of held-out tokens that were predicted for `val_loss`."""
    val_split_targets: int | None = None
    """Number of held-out tokens that can be predicted."""
    val_standard_error: float | None = None
    """Standard error of `val_loss` as an estimate for the whole held-out text; 0 if all of it was evaluated."""
    sample: SampledText | None = None
    """A text of the trained model; None for cells of studies, larger models, several ranks, and older records."""
    skipped_steps: int = 0
    """Updates that were skipped because a gradient was not finite (fp16)."""
    routers: tuple[RouterLayer, ...] = ()
    loss_scale: float | None = None


class Speed(_Group):
    """The time that a run takes."""

    tokens_per_second: float | None = None
    """Tokens per step over the median seconds of a steady step."""
    step_seconds: Quartiles | None = None
    epoch_seconds: float | None = None
    """Seconds of one pass over the training text, at `tokens_per_second`."""
    data_wait_share: float | None = None
    """Share of the steady steps' seconds in which the host waited for its batch; on several ranks, the first rank's."""
    phase_seconds: Mapping[str, float] = Field(default_factory=dict)
    """Seconds of each phase; they sum to the wall time of the last process."""
    blocks: tuple[Block, ...] = ()
    first_step_seconds: float | None = None


class Proof(_Group):
    """Proof that the optimizations of a run took effect and computed the values that they should."""

    evidence: tuple[Evidence, ...] = ()
    values: ValueProof | None = None
    """Result of the value check; None in records older than it, and if a run ended before it."""
    proven_until: Literal["beginning", "end"] | None = None
    """`end` if a step traced after the last checkpoint showed the same; None without evidence and in older records."""
    trace: TraceSummary | None = None
    counters: Mapping[str, int] = Field(default_factory=dict)

    @property
    def lacks(self) -> str:
        """The part that was not proven of a finished run; empty if none is, and without optimizations."""
        if not self.evidence:
            return ""
        if self.values is None:
            return "its values were not compared"
        return self.values.lacks or ("its end was not traced" if self.proven_until == "beginning" else "")


class Provenance(_Group):
    """Origin of a run, and the surroundings that decide its figures."""

    created: str
    """UTC, ISO 8601."""
    identity: str
    """Hash of the canonical configuration."""
    preset: str | None = None
    """Preset or file from which the configuration was loaded."""
    branch: Branch | None = None
    """Run and step that this run continues as one of its own; None if it began with initial weights."""
    environment: Environment | None = None


_GROUPS: Mapping[str, type[_Group]] = {"loss": Loss, "speed": Speed, "proof": Proof, "provenance": Provenance}
_GROUP_OF = {name: group for group, kind in _GROUPS.items() for name in kind.model_fields}
"""Group of each field that lies flat in JSON."""
_ORDER = (
    *("run", "status", "reason", "created", "identity", "preset", "config", "branch", "steps", "tokens", "documents"),
    *("parameters", "train_loss", "loss_spread", "gradients", "gradient_probe", "val_loss", "val_perplexity"),
    *("val_bits_per_byte", "val_targets", "val_split_targets", "val_standard_error", "tokens_per_second"),
    *("step_seconds", "epoch_seconds", "data_wait_share", "phase_seconds", "memory", "missing", "ranks", "predicted"),
    *("evidence", "values", "proven_until", "environment", "sample", "blocks", "first_step_seconds", "skipped_steps"),
    "extra",
)
"""Keys of the JSON of a run, in their order."""


# Its fields are in groups, and its JSON is flat.
class RunResult(Record):
    """The complete record of one run. Its own losses that are not finite are null in JSON, and read as None."""

    run: str
    """The run's id, which is its folder's name."""
    status: Status
    reason: str | None = None
    """One sentence for every status except `done`."""
    config: ResolvedRun
    steps: int = 0
    tokens: int = 0
    documents: int | None = None
    """Documents of which training has read a token, a repeated one each time; None without `streaming`."""
    parameters: int | None = None
    loss: Loss = Field(default_factory=Loss)
    speed: Speed = Field(default_factory=Speed)
    memory: Memory = Field(default_factory=Memory)
    proof: Proof = Field(default_factory=Proof)
    provenance: Provenance
    predicted: Predicted | None = None
    missing: Mapping[str, str] = Field(default_factory=dict)
    """Figures that this system does not tell, each with the reason; empty in records older than this field."""
    ranks: tuple[RankResult, ...] = ()
    """Record of each rank; empty on one rank. `memory` has the highest figures of all ranks."""
    notes: tuple[str, ...] = ()
    later: Mapping[str, Any] = Field(default_factory=dict)
    """Facts of a later version, as they were read."""

    @property
    def unproven(self) -> str:
        """The part that was not proven of a run that ended as done; empty if all of it was."""
        if self.status is not Status.DONE or not self.proof.evidence:
            return ""
        lacks, between = self.proof.lacks, Between.of(self.speed.blocks)
        if lacks or between is None or not between.too_much():
            return lacks
        return f"{between.seconds / between.of_seconds:.0%} of its time passed between the clocks of its steps"

    @model_validator(mode="before")
    @classmethod
    def _in_groups(cls, given: Any) -> Any:
        """Sort the flat fields of JSON into their groups."""
        return _sorted(given) if isinstance(given, Mapping) else given

    @model_serializer(mode="wrap")
    def _flat(self, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        found, left_out = write(self), info.exclude or ()
        for group in _GROUPS:
            own = found.pop(group)
            found |= {name: _finite(one) for name, one in own.items()} if info.mode == "json" else own
        facts = {name: found.pop(name) for name in Extra.model_fields}
        found["extra"] = {name: fact for name, fact in facts.items() if getattr(self, name)} | found.pop("later")
        return {name: found[name] for name in _ORDER if name not in left_out}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the flat JSON."""
        found = handler.resolve_ref_schema(handler(core))
        kinds = [handler.resolve_ref_schema(handler(kind.__pydantic_core_schema__)) for kind in _GROUPS.values()]
        flat = {key: one for kind in (found, *kinds) for key, one in kind["properties"].items()}
        flat["extra"] = handler(list_schema(Extra.__pydantic_core_schema__))["items"]  # by its name
        required = {key for kind in (found, *kinds) for key in kind.get("required", ())}
        found["properties"] = {name: flat[name] for name in _ORDER}
        found["required"] = [name for name in _ORDER if name in required]
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field of a group by its flat name, as users' metrics and tables of names read it."""
            group = _GROUP_OF.get(name)
            return super().__getattr__(name) if group is None else getattr(getattr(self, group), name)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of fields, which are named as in the flat JSON."""
        grouped = _sorted(update or {})
        for group in _GROUPS.keys() & grouped.keys():
            if isinstance(grouped[group], Mapping):
                grouped[group] = getattr(self, group).model_copy(update=grouped[group])
        return super().model_copy(update=grouped, deep=deep)


def _finite(figure: Any) -> Any:
    """Return a figure of a group's own as JSON has it, or figures by name."""
    if isinstance(figure, dict) and all(isinstance(one, float) for one in figure.values()):
        return {name: _finite(one) for name, one in figure.items()}
    return None if isinstance(figure, float) and not isfinite(figure) else figure


def _sorted(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of flat JSON by group, beside those that are in none."""
    extra = Extra.model_validate(flat.get("extra") or {})
    facts = {name: getattr(extra, name) for name in extra.model_fields_set & Extra.model_fields.keys()}
    found: dict[str, Any] = {"later": extra.model_extra} if extra.model_extra else {}
    for name, value in {**flat, **facts}.items():
        if name in _GROUP_OF:
            found.setdefault(_GROUP_OF[name], {})[name] = value
        elif name != "extra":
            found[name] = value
    return found


LARGEST = 1e100
"""Largest figure. Sums, products and squares of such figures are finite."""

_FACTS = {*Extra.model_fields, "later"}
_INFINITE = ("values", "gradients", "gradient_probe", "proof", "layers")
"""Fields whose figures may be infinite: errors of a run with wrong values, and gradients of one that diverged."""
_UNBOUNDED = ("perplexity", "val_perplexity")
"""Fields that are exponentials."""
_COUNTS = (
    *("steps", "tokens", "parameters", "documents", "skipped_steps", "tokens_per_second", "cores"),
    *("lower", "median", "upper", "epoch_seconds", "first_step_seconds", "median_step_seconds", "loss_spread"),
)
"""Fields that are never negative."""
_AMOUNTS = ("_bytes", "_targets", "perplexity", "standard_error")
"""Ends of the names of further fields that are never negative."""
_SHARES = ("data_wait_share", "idle_share", "bubble_share")
"""Fields that are a share of a whole."""
_MOST_SHARE = 1.1
"""Larger shares cannot be; the clocks of a host and of its device may differ a little."""
_MOST_BYTES = 2**63
"""More bytes than a measured memory has; a predicted one may have them."""


def parse_json(text: bytes | str) -> Any:
    """Parse JSON. Raises `ValueError` also for NaN and infinity, which JSON does not have."""
    return json.loads(text, parse_constant=_refused)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no figure")


def check_possible(record: BaseModel) -> None:
    """Raise `ValueError` with the name of the first figure of a record that cannot be."""
    for name, value in _impossible(record, ""):
        raise ValueError(f"its figure {name} is {short_text(value)}, which cannot be")


def _impossible(value: object, name: str) -> Iterator[tuple[str, float]]:
    """Yield each figure that cannot be, with its name."""
    last = name.rpartition(".")[2]
    if last in _INFINITE or isinstance(value, bool | str):
        return
    if isinstance(value, int | float):
        lowest, most = _limits(name, last)
        if not lowest <= value < most:
            yield name, value
        return
    if isinstance(value, Quartiles) and not value.lower <= value.median <= value.upper:
        yield f"{name}.median", value.median
    for key, one in _parts(value):
        yield from _impossible(one, f"{name}.{key}" if name else str(key))


def _limits(name: str, last: str) -> tuple[float, float]:
    """Return the least figure that a field can have, and one that is too large."""
    if last in _SHARES:
        return 0.0, _MOST_SHARE
    most = inf if last in _UNBOUNDED else _MOST_BYTES if "memory." in name else LARGEST
    return (0.0 if last in _COUNTS or last.endswith(_AMOUNTS) else -LARGEST), most


def _parts(value: object) -> Iterable[tuple[object, object]]:
    """Return the parts of a nested value with their names; curves have many figures, so whole ones are none."""
    if isinstance(value, RunResult):
        groups = [vars(getattr(value, group)).items() for group in _GROUPS]
        every = [(name, one) for name, one in vars(value).items() if name not in _GROUPS]
        return [(name, one) for part in (every, *groups) for name, one in part if name not in _FACTS]
    if isinstance(value, BaseModel):
        return [*vars(value).items(), *(value.model_extra or {}).items()]
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, Sequence):
        figures = all(isinstance(one, float) for one in value)
        return [] if figures and all(abs(one) < LARGEST for one in value) else enumerate(value)
    return []
