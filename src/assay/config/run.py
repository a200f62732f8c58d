"""A run is data: everything that decides what is trained, and the hash that identifies it."""

import hashlib
import json
import re
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from assay.config.base import Frozen, Setting
from assay.config.data import DataConfig
from assay.config.model import NEWER, ModelConfig
from assay.config.training import TrainingConfig

Scalar = bool | int | float | str | None

READ_TOGETHER = 10
"""Steps whose figures the host reads together on a GPU, unless a run says otherwise.

nanoGPT logs GPT-2's loss as often (`log_interval` of its config/train_gpt2.py).
"""
_PLUS = re.compile(r"\+(?![\d.])")
"""Plus sign between two optimizations, unlike that of an exponent."""
_SCIENTIFIC = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+\s*")
"""A number that YAML 1.1 reads as text because it lacks a point or a sign, such as 1e-4."""


class Spec(Frozen):
    """Name of an optimization and its fields as plain values; the registry interprets them."""

    name: str
    fields: dict[str, Scalar] = Field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``name`` or ``name:field=value,field=value``, with values as in YAML 1.2. Raises `ValueError`."""
        name, _, tail = text.strip().partition(":")
        fields: dict[str, Scalar] = {}
        for assignment in filter(None, tail.split(",")):
            key, equals, value = assignment.partition("=")
            key = key.strip()
            if not equals or not key or not value.strip():
                raise ValueError(f"{assignment!r} in {text!r} is not of the form field=value")
            if key in fields:
                raise ValueError(f"the field {key!r} is given twice in {text!r}")
            fields[key] = _scalar(value, text)
        if not name or (":" in text and not fields):
            raise ValueError(f"{text!r} is not an optimization: write NAME or NAME:field=value,field=value")
        return cls(name=name, fields=fields)

    @classmethod
    def parse_stack(cls, text: str) -> tuple[Self, ...]:
        """Parse specs joined by plus signs, as in ``sdpa_attention+lion:learning_rate=1e-4``. Raises `ValueError`."""
        parts = [part.strip() for part in _PLUS.split(text)]
        if len(parts) > 1 and not all(parts):
            raise ValueError(f"{text!r} lacks an optimization on one side of a plus sign")
        return tuple(map(cls.parse, parts))

    def __str__(self) -> str:
        fields = ",".join(f"{key}={_plain(value)}" for key, value in sorted(self.fields.items()))
        return f"{self.name}:{fields}" if fields else self.name


def _scalar(value: str, text: str) -> Scalar:
    import yaml

    if _SCIENTIFIC.fullmatch(value):
        return float(value)
    with suppress(yaml.YAMLError):
        found = yaml.safe_load(value)
        if isinstance(found, bool | int | float | str | None):
            return found
    raise ValueError(f"{value!r} in {text!r} cannot be read as a value")


def _plain(value: Scalar) -> str:
    return json.dumps(value) if isinstance(value, bool | None) else str(value)


class Run(Setting):
    """Configuration of one training run."""

    model: ModelConfig = Field(default_factory=ModelConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Number that decides initial weights, the order of batches, and dropout."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU if torch finds one."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads for CPU kernels. None: torch's choice, or one for each of `cores`."""
    cores: Annotated[tuple[Annotated[int, Field(ge=0, lt=4096)], ...], Field(min_length=1)] | None = None
    """Numbers of the cores to which the run is pinned, such as ``[0, 1]``; its ranks divide them. None: all."""
    ranks: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Number of processes that optimizations may divide the run among."""
    oversubscribe: bool = False
    """Allow more processes than cores. They then wait for each other, and times mean little."""
    optimizations: tuple[Spec, ...] = ()
    """Techniques that are on, as after `--with`; their order does not matter."""
    nudge: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """If not 0, each initial weight moves by one unit in the last place, and dropout draws other masks.

    The number determines the directions. Two runs that differ only in it show how far rounding alone moves their losses
    apart.
    """

    @field_validator("optimizations", mode="before")
    @classmethod
    def _read_specs(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value] if value.strip() else []
        if not isinstance(value, list | tuple):
            return value
        return tuple(spec for item in value for spec in _read_specs(item))

    @field_validator("cores", mode="before")
    @classmethod
    def _read_cores(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value = [value]
        return tuple(value) if isinstance(value, list) else value

    @field_validator("cores")
    @classmethod
    def _each_core_once(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and len(set(value)) < len(value):
            raise ValueError("cores names a core twice")
        return value

    @model_validator(mode="after")
    def _each_optimization_once(self) -> Self:
        names = [spec.name for spec in self.optimizations]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the optimization {name!r} is listed twice")
        return self

    @model_validator(mode="after")
    def _probes_own_model_alone(self) -> Self:
        if self.model.own is not None and self.training.gradient_probe:
            raise ValueError("training.gradient_probe compares gradients of assay's model; leave it out for your own")
        return self

    def read_every(self, device: str) -> int:
        """Number of steps whose figures a plain step on `device`, `cpu` or `cuda`, leaves to be read together.

        A GPU idles while the host waits for a number. A CPU has computed it before the host goes on. A loss of a user's
        own may count no target of a batch, which spoils the weights unless the norm is read before the update.
        """
        waits = device != "cuda" or self.model.own is not None
        return self.training.read_every or (1 if waits else READ_TOGETHER)

    def with_vocabulary(self, size: int | None = None) -> Self:
        """Return the run with `model.vocab_size` set to `size`, or to the tokenizer's size if that is known without
        text.

        A size that is already set is kept.
        """
        if size is None:
            size = self.data.known_vocabulary
        if self.model.vocab_size is not None or size is None:
            return self
        return self.model_copy(update={"model": self.model.model_copy(update={"vocab_size": size})})


class OwnRows(Frozen):
    """Facts of the batches of a user's own, as their functions gave them before the run began."""

    targets: PositiveInt
    """Number of targets of a row."""
    validation: bool
    """True if there are held-out batches."""


class ResolvedRun(Run):
    """A run after `assay.optimizations.resolve_run`: what a configuration comes to, with all that follows from it.

    Its optimizations are in the order of application and have every field, and `ranks` is the size of their mesh.
    """

    batch_divisor: PositiveInt = 1
    """Factor by which the optimizations reduce the sequences of a step."""
    own_rows: OwnRows | None = None
    """Facts of the batches that come with a user's model. None: the run trains on its corpus."""

    def asked(self) -> Run:
        """Return the run as a user would write it, to be changed and resolved again."""
        return Run.model_validate(self.model_dump(exclude={"batch_divisor", "own_rows"}))

    @property
    def sequences_per_step(self) -> int:
        """Number of sequences that one optimizer step trains on."""
        return self.training.batch_size // self.batch_divisor

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens that one optimizer step trains on; of a user's own batches, their targets."""
        return self.sequences_per_step * (self.model.context_length if self.own_rows is None else self.own_rows.targets)

    @property
    def counted(self) -> str:
        """Word for the tokens of a step: ``tokens``, or ``targets`` of a user's own batches."""
        return "tokens" if self.own_rows is None else "targets"


def _read_specs(item: Any) -> tuple[Any, ...]:
    if isinstance(item, str):
        return Spec.parse_stack(item)
    if isinstance(item, dict) and len(item) == 1 and "name" not in item:
        ((name, fields),) = item.items()
        return ({"name": name, "fields": fields or {}},)
    return (item,)


def identity(run: ResolvedRun) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the run's canonical JSON.

    Defaults are written out and keys are sorted, so key order and the spelling of a default do not matter. The newer
    fields `nudge`, `cores`, `own_rows`, `training.gradient_probe`, `training.read_every` and those of `NEWER`, of the
    model and of the data, are left out at their defaults. So runs that were recorded before them keep their hash.
    `check_values` is left out, because the check changes nothing that is trained or measured.
    """
    left_out: dict[str, Any] = {"training": {"check_values"}}
    if not run.training.gradient_probe:
        left_out["training"].add("gradient_probe")
    if run.training.read_every is None:
        left_out["training"].add("read_every")
    newer = (("nudge", 0), ("cores", None), ("own_rows", None))
    left_out |= {name: True for name, default in newer if getattr(run, name) == default}
    left_out["data"] = run.data.newer_defaults()
    defaults = ModelConfig.model_fields
    left_out["model"] = {name for name in NEWER if getattr(run.model, name) == defaults[name].default}
    plain = run.model_dump(mode="json", exclude=left_out)
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
