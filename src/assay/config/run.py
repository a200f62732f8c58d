"""A run is data: everything that decides what is trained, and the hash that identifies it.

Its sections are the text to train on, the settings of training, and the model (`config.model`).
"""

import codecs
import hashlib
import io
import json
import re
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from assay.config.base import Frozen, PathText, Setting
from assay.config.model import NEWER, ModelConfig

KNOWN_VOCABULARIES = {"byte": 256, "gpt2": 50257}
"""Vocabulary sizes that are known before any text is read."""
CHARACTERS = {"shakespeare": 65}
"""Different characters of a published text, of which no part is left out: nanoGPT, data/shakespeare_char/readme.md."""

NEWER_OF_TRAINING = ("gradient_probe", "read_every", "decay_fraction", "keep_steps")
"""Fields that training of earlier versions lacks: at their defaults they are no part of the identity of a run."""
NEWER_OF_DATA = ("evaluate_on", "encoding", "max_unknown")
"""Fields that runs of earlier versions lack: at their defaults they are no part of the identity of a run or folder."""


class DataConfig(Setting):
    """A corpus, a tokenizer and a split."""

    corpus: str = "stdlib"
    """`stdlib`, `shakespeare`, `wikitext-2`, or `files` to read `path`."""
    path: PathText | None = None
    """A text file, folder or glob; it implies `corpus: files`. Records are .jsonl, .json, .csv, .tsv, .parquet, .arrow
    and folders that `datasets` saved. Files may be compressed (.gz, .zst, .bz2, .xz)."""
    text_field: str = "text"
    """The field or column of records that holds the text."""
    encoding: str = "utf-8"
    """Encoding of text files, such as `latin-1` or `utf-16`."""
    tokenizer: PathText = "byte"
    """`char`, `byte`, `bpe` (trained on the corpus), `gpt2`, or the path of a tokenizer.json."""
    tokenizer_path: PathText | None = None
    """Folder with GPT-2's vocab.json and merges.txt. None: the hub's files, if it is reachable."""
    bpe_vocab_size: Annotated[int, Field(ge=257, le=16_777_216)] = 1024
    """Size of a byte-pair vocabulary trained on the corpus."""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """Share of the text, at its end, that is held out, unless the corpus has its own validation split."""
    evaluate_on: Literal["held-out", "validation", "test"] = "held-out"
    """Text whose loss is measured: all that is held out, or one of two parts. Choose settings by `validation`, and
    report their losses on `test`. `test` is the corpus's test split, or else the second half of the held-out text;
    `validation` is the rest."""
    max_bytes: PositiveInt | None = None
    """Most bytes of text to read, from the start. None: all of it."""
    max_unknown: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Most tokens that may be unknown to the tokenizer, by token; a text with more is refused."""

    @field_validator("encoding")
    @classmethod
    def _is_an_encoding_of_text(cls, value: str) -> str:
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=value)
        except LookupError:
            raise ValueError(
                f"data.encoding={value} is no encoding that Python knows; write utf-8 or latin-1"
            ) from None
        return codecs.lookup(value).name

    @model_validator(mode="after")
    def _path_and_corpus_agree(self) -> Self:
        if self.corpus == "files" and self.path is None:
            raise ValueError("data.corpus=files needs data.path=FILE, FOLDER or GLOB")
        return self

    def newer_defaults(self) -> set[str]:
        """Return the names among `NEWER_OF_DATA` that have their defaults."""
        return {name for name in NEWER_OF_DATA if getattr(self, name) == type(self).model_fields[name].default}

    @property
    def known_vocabulary(self) -> int | None:
        """Size of the vocabulary, if it is known before any text is read."""
        if self.tokenizer == "char":
            return CHARACTERS.get(self.source) if self.max_bytes is None else None
        return {**KNOWN_VOCABULARIES, "bpe": self.bpe_vocab_size}.get(self.tokenizer)

    @property
    def source(self) -> str:
        """Corpus that is read: `files` if a path is given."""
        return "files" if self.path is not None else self.corpus


Momentum = Annotated[float, Field(ge=0.0, lt=1.0)]


# More than 20 fields: users know them as the one section `training` of a file, and by these flat keys.
class TrainingConfig(Setting):
    """Settings of training. An optimizer step uses `batch_size` sequences, however micro-batches and ranks divide
    them."""

    batch_size: PositiveInt = 12
    """Sequences per optimizer step."""
    steps: PositiveInt = 2000
    """Optimizer steps."""
    tokens: PositiveInt | None = None
    """Stop, resumably, after training on this many tokens."""
    seconds: PositiveFloat | None = None
    """Stop, resumably, after this many seconds of training."""
    target_loss: PositiveFloat | None = None
    """Stop when the loss of an evaluation is at or below this value."""

    learning_rate: PositiveFloat = 1e-3
    """Largest learning rate, after warm-up."""
    min_learning_rate: NonNegativeFloat = 1e-4
    """Learning rate at the end of a schedule that falls, from step `decay_steps` on."""
    warmup_steps: NonNegativeInt = 100
    """Steps in which the learning rate rises linearly to its largest value."""
    decay_steps: PositiveInt | None = None
    """Step, counted from 0, at which the schedule reaches `min_learning_rate`. None: `steps`, so that the step after
    the last would have it, as in nanoGPT."""
    schedule: Literal["cosine", "constant", "wsd"] = "cosine"
    """Learning rate after warm-up: a cosine, constant, or `wsd`, which is constant and falls linearly at the end."""
    decay_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    """Share of the steps, at their end, in which the schedule `wsd` falls to `min_learning_rate`."""
    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of matrices and embeddings."""
    beta1: Momentum = 0.9
    """Decay of the optimizer's mean of gradients."""
    beta2: Momentum = 0.99
    """Decay of the optimizer's mean of squared gradients."""
    epsilon: PositiveFloat = 1e-8
    """Number added to the root of the mean square, so that no update divides by zero."""
    gradient_clip: NonNegativeFloat = 1.0
    """Largest global gradient norm; 0 turns clipping off."""

    eval_interval: NonNegativeInt = 250
    """Steps between evaluations; 0 evaluates only at the end."""
    eval_batches: PositiveInt | None = 32
    """Number of validation batches per evaluation, always the same and spread over the split. None: the whole split."""
    checkpoint_interval: NonNegativeInt = 0
    """Steps between checkpoints; 0 saves only at the end and on an interrupt."""
    keep_steps: tuple[PositiveInt, ...] = ()
    """Steps after which a checkpoint is saved and kept, such as ``[400, 800]``, so that runs can branch from it."""
    check_values: bool = True
    """Compare losses, gradients and updates of first, drawn and last steps with a baseline, in another process."""
    gradient_probe: Annotated[int, Field(ge=0, le=1000)] = 0
    """Micro-batches of `batch_size` sequences whose gradients are compared after the last step; 0 compares none.

    The comparison is that of `assay gradients`: of the plain model, at the weights that the run trained. It is untimed
    and updates nothing. It needs 24 bytes a parameter and the activations of a micro-batch, on the CPU.
    """
    measure_memory: bool = True
    """Run one untimed, discarded step at the end to measure memory."""
    read_every: PositiveInt | None = None
    """Steps whose loss and norms the host reads together, without waiting before. None: 10 on a GPU, else 1."""

    @field_validator("keep_steps", mode="before")
    @classmethod
    def _read_steps(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value = [value]
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _schedule_is_possible(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError(f"min_learning_rate={self.min_learning_rate} is above learning_rate={self.learning_rate}")
        if self.gradient_probe == 1:
            raise ValueError("gradient_probe=1 has no two micro-batches to compare; give at least 2, or 0 for none")
        return self


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
    fields `nudge`, `cores`, `own_rows`, `NEWER` of the model, `NEWER_OF_TRAINING` and `NEWER_OF_DATA` are left out at
    their defaults. So runs that were recorded before them keep their hash.
    `check_values` is left out, because the check changes nothing that is trained or measured.
    """
    written = TrainingConfig.model_fields
    unset = {name for name in NEWER_OF_TRAINING if getattr(run.training, name) == written[name].default}
    left_out: dict[str, Any] = {"training": {"check_values", *unset}}
    newer = (("nudge", 0), ("cores", None), ("own_rows", None))
    left_out |= {name: True for name, default in newer if getattr(run, name) == default}
    left_out["data"] = run.data.newer_defaults()
    defaults = ModelConfig.model_fields
    left_out["model"] = {name for name in NEWER if getattr(run.model, name) == defaults[name].default}
    plain = run.model_dump(mode="json", exclude=left_out)
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
