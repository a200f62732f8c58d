"""A question of *What if*: a preset with other numbers, a stack, a device and its number of GPUs, as an address has it.

An address names presets, techniques and numbers only. It names no file, data set or key, so no request reads a file of
the server or uses the network. Every number has a limit, so that no answer takes long. The preset has those that are
left out.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import get_args
from urllib.parse import urlencode

from assay.api import configure
from assay.api.recommending import CALIBRATION_SECONDS
from assay.config.loading import presets
from assay.config.run import Run, Spec
from assay.errors import UsageError, among, short_text
from assay.hardware.devices import DEVICES
from assay.optimizations import catalogue, resolve

HERE = "here"
"""The machine that serves the dashboard."""
ABSENT = tuple(name for name, one in DEVICES.items() if one.source.startswith("NVIDIA"))
"""Devices whose memory is predicted: those that run CUDA."""
_KEPT = 256
"""Configurations that are kept."""
_LONGEST, _DIGITS = 2000, 12
"""Characters of a stack and of a number in an address."""


@dataclass(frozen=True)
class WhatIfSetting:
    """A number of a configuration that the reader may change."""

    key: str
    label: str
    least: int
    most: int


SETTINGS: Mapping[str, WhatIfSetting] = {
    "layers": WhatIfSetting("model.n_layer", "layers", 1, 128),
    "heads": WhatIfSetting("model.n_head", "heads", 1, 128),
    "width": WhatIfSetting("model.n_embd", "width", 8, 16_384),
    "vocabulary": WhatIfSetting("model.vocab_size", "vocabulary", 2, 262_144),
    "context": WhatIfSetting("model.context_length", "context, tokens", 8, 131_072),
    "batch": WhatIfSetting("training.batch_size", "batch, sequences", 1, 4096),
}
"""Numbers by their name in an address."""
COUNTS = {"micro": ("micro-batches", 1024), "gpus": ("GPUs", 8)}
"""Further numbers: label and largest value."""


@dataclass(frozen=True)
class WhatIfQuestion:
    """A configuration and where it should run."""

    preset: str = "demo"
    changes: tuple[tuple[str, int], ...] = ()
    """Names of `SETTINGS` with values that differ from the preset's."""
    micro: int = 1
    """Micro-batches of an optimizer step."""
    stack: str = ""
    """Further optimizations as after ``--with``; those of the preset stay on."""
    device: str = HERE
    gpus: int = 1

    @property
    def overrides(self) -> tuple[str, ...]:
        """The changed numbers as overrides."""
        return tuple(f"{SETTINGS[name].key}={value}" for name, value in self.changes)

    @property
    def optimizations(self) -> str:
        """The stack with the technique that cuts the batch."""
        cut = f"{cutting()}:micro_batches={self.micro}" if self.micro > 1 else ""
        return "+".join(filter(None, (self.stack, cut)))

    @property
    def ranks(self) -> tuple[str, ...]:
        """Overrides for the place: the kind of device and the number of ranks."""
        place = () if self.device == HERE else ("device=cuda",)
        return (*place, *((f"ranks={self.gpus}",) if self.gpus > 1 else ()))

    @property
    def query(self) -> str:
        """The question as the query of an address, without whatever is the default."""
        values: dict[str, str | int] = {"preset": self.preset, **dict(self.changes)}
        defaults = WhatIfQuestion()
        for name in ("micro", "stack", "device", "gpus"):
            if getattr(self, name) != getattr(defaults, name):
                values["with" if name == "stack" else name] = getattr(self, name)
        return urlencode(values)

    def run(self) -> Run:
        """Return its run. Raises `UsageError` with the sentence of a setting or a stack that is not possible."""
        return _configured(self.preset, (*self.overrides, *self.ranks), self.optimizations)


def read(query: Mapping[str, str]) -> WhatIfQuestion:
    """Return the question of an address. Raises `UsageError` for an unknown name and for an impossible number."""
    preset = _chosen("preset", query.get("preset") or "demo", presets())
    bare = WhatIfQuestion(preset).run().with_vocabulary()
    changes = {}
    for name, setting in SETTINGS.items():
        given = _number(setting.label, query.get(name), setting.least, setting.most)
        if given is not None and given != value(bare, name):
            changes[name] = given
    counts = {name: _number(label, query.get(name), 1, most) or 1 for name, (label, most) in COUNTS.items()}
    device = _chosen("device", query.get("device") or HERE, (HERE, *ABSENT))
    if counts["gpus"] > 1 and device == HERE:
        raise UsageError("several GPUs are planned by a datasheet; choose a device by its name, or one GPU")
    # A plus sign that a person types into a link is a space there.
    stack, cut = _without_cut(query.get("with", "").strip().replace(" ", "+"))
    return WhatIfQuestion(preset, tuple(changes.items()), cut or counts["micro"], stack, device, counts["gpus"])


@lru_cache(maxsize=_KEPT)
def _configured(preset: str, overrides: tuple[str, ...], optimizations: str) -> Run:
    """Return a run, which several parts of an answer need."""
    return configure(preset, overrides, optimizations or None)


def value(run: Run, name: str) -> int | None:
    """Return a number of a run by its name in an address; None for a vocabulary that only the text determines."""
    room, _, key = SETTINGS[name].key.partition(".")
    found: int | None = getattr(getattr(run, room), key)
    return found


def commands(question: WhatIfQuestion) -> tuple[tuple[str, str], ...]:
    """Return the commands that answer and run a question, each with what it does."""
    words = [question.preset, *question.overrides]
    stack = ["--with", question.optimizations] if question.optimizations else []
    if question.device == HERE:
        return (
            ("predict memory and time", _line("assay", "estimate", *words, *stack)),
            ("train and measure", _line("assay", "train", *words, *stack)),
        )
    if question.gpus == 1:
        return (
            ("predict memory and time", _line("assay", "estimate", *words, *stack, "--device", question.device)),
            ("search what fits", _line("assay", "capacity", *words, *stack, "--device", question.device)),
        )
    where = ["--nodes", "1", "--gpus-per-node", str(question.gpus), "--gpu", question.device]
    return (("plan the step", _line("assay", "plan", *words, *stack, *where)),)


def search_command(question: WhatIfQuestion, memory_bytes: int) -> str:
    """Return the command that searches what to turn on, and on this machine times the front-runners as well."""
    limit = ["--memory", f"{memory_bytes}B", "--of", "process", "--calibrate", f"{CALIBRATION_SECONDS:g}"]
    where = limit if question.device == HERE else ["--device", question.device]
    return _line("assay", "recommend", question.preset, *question.overrides, *where)


@cache
def cutting() -> str:
    """Name of the technique that only cuts the batch into micro-batches, by its claim."""
    return next(name for name, kind in catalogue().items() if kind.claims == {"micro_batches"})


def _without_cut(text: str) -> tuple[str, int | None]:
    """Return a stack without the technique that cuts the batch, and its micro-batches; None if it has none.

    A stack that cannot be read is returned as it is, and the run refuses it. Raises `UsageError` for a long one.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"a stack of {len(text):,} characters is too long; name each optimization once")
    try:
        specs = Spec.parse_stack(text) if text else ()
    except ValueError:
        return text, None
    for spec in specs:
        _check_fields(spec)
    cut = next((resolve(one).cuts() for one in specs if one.name == cutting()), None)
    return "+".join(str(one) for one in specs if one.name != cutting()), cut


def _check_fields(spec: Spec) -> None:
    """Raise `UsageError` for a field with free text, which may name a file or a data set that a check would open."""
    kind = catalogue().get(spec.name)
    fields = {} if kind is None else kind.model_fields
    free = next((name for name in spec.fields if name in fields and _takes_text(fields[name].annotation)), None)
    if free is not None:
        raise UsageError(f"{spec.name}:{free} may name a file, so an address cannot give it; the command line can")


def _takes_text(annotation: object) -> bool:
    return annotation is str or any(map(_takes_text, get_args(annotation)))


def _line(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _chosen(what: str, name: str, known: tuple[str, ...] | list[str]) -> str:
    if name not in known:
        raise UsageError(f"there is no {what} {short_text(name)}{among(name, known)}")
    return name


def _number(label: str, text: str | None, least: int, most: int) -> int | None:
    """Return a whole number of an address; None if it is not there. Raises `UsageError`."""
    if text is None or not text.strip():
        return None
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < _DIGITS and least <= int(digits) <= most):
        raise UsageError(f"{label}={short_text(text)} is not possible; give a whole number from {least:,} to {most:,}")
    return int(digits)
