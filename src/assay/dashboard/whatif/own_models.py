"""Models of the user's own in *What if*: the peak memory of one step of a function that the command line has named.

A request names no code. It chooses among the functions that `assay dashboard --model` was given, and any other text is
refused before a file is looked for. A request starts a process, so one that a page of another site makes is refused.
The function runs as in `assay estimate file.py:function`. There is one process at a time, and a question that waits is
replaced by a newer one. Answers are kept until the file changes.
"""

import logging
import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from assay.api import gpu_peak, trace
from assay.config.extensions import names_a_function
from assay.dashboard.whatif.question import ABSENT, HERE
from assay.errors import UsageError, among, short_text
from assay.hardware import detect
from assay.hardware.devices import DEVICES
from assay.report.gpu_peak import GpuPeakView, headline
from assay.report.kit.blocks import Block
from assay.units import format_bytes

_KEPT = 32
_MOST_ROWS = 4096
_DIGITS = 5
_FAILED = "The step could not be followed. The terminal in which the dashboard runs shows why."


class OwnQuestion(NamedTuple):
    """A function of the user's own, and where its step should run."""

    model: str
    device: str = HERE
    batch: int | None = None
    """Rows of a step; None: those that the function has, or those of the preset `demo`."""

    @property
    def commands(self) -> tuple[tuple[str, str], ...]:
        """Commands that predict the same, and that tell the time of a step, each after what it does."""
        rows = () if self.batch is None else (f"training.batch_size={self.batch}",)
        place = ("--trace",) if self.device == HERE else ("--device", self.device)
        script = ("--", "python", self.model.rpartition(":")[0])
        timed = ("measure", self.model) if self.device == HERE else ("absent", self.device, "--times", *script)
        return (
            ("predict the same", shlex.join(("assay", "estimate", self.model, *rows, *place))),
            (
                "measure the step" if self.device == HERE else "predict the time of your script",
                shlex.join(("assay", *timed)),
            ),
        )


class OwnAnswer(NamedTuple):
    """The answer to a question as far as it is known."""

    state: Literal["found", "searching", "refused"]
    sentence: str = ""
    blocks: tuple[Block, ...] = ()


def check_models(names: Sequence[str]) -> tuple[str, ...]:
    """Return functions as the command line names them, each once.

    Raises `UsageError` for a text that names none, and for a file that is not there.
    """
    for name in names:
        if not names_a_function(name):
            raise UsageError(f"--model {short_text(name)} names no function; write file.py:function or module:function")
        file = name.rpartition(":")[0]
        if file.endswith(".py") and not Path(file).is_file():
            raise UsageError(f"--model {short_text(name)}: there is no file {short_text(file)}")
    return tuple(dict.fromkeys(names))


def read_own(query: Mapping[str, str], models: Sequence[str]) -> OwnQuestion:
    """Return the question of an address. Raises `UsageError` for a function that the command line has not named."""
    if not models:
        raise UsageError("no model of yours is named; start `assay dashboard --model file.py:function`")
    model, device = query.get("model") or models[0], query.get("device") or HERE
    if model not in models:
        raise UsageError(f"{short_text(model)} is not one of the models that `assay dashboard --model` named")
    if device not in (HERE, *ABSENT):
        raise UsageError(f"there is no device {short_text(device)}{among(device, ABSENT)}")
    rows = query.get("batch", "").strip()
    if rows and not (rows.isascii() and rows.isdigit() and len(rows) < _DIGITS and 1 <= int(rows) <= _MOST_ROWS):
        raise UsageError(f"batch={short_text(rows)} is not possible; give a whole number from 1 to {_MOST_ROWS:,}")
    return OwnQuestion(model, device, int(rows) if rows else None)


_Key = tuple[OwnQuestion, int]
"""A question, and the time of the last change of its file."""


class OwnModels:
    """Answers to questions on models of the user's own, one process at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[_Key, OwnAnswer] = OrderedDict()
        self._waiting: _Key | None = None
        self._working: _Key | None = None

    def ask(self, question: OwnQuestion) -> OwnAnswer:
        """Return the answer to a question if it is known; else begin to look for it."""
        key = (question, _changed(question.model))
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
            if self._working is None:
                self._working = key
                threading.Thread(target=self._work, daemon=True).start()
            elif self._working != key:
                self._waiting = key
        return OwnAnswer("searching", "The step is followed on tensors without memory. This takes some seconds.")

    def _work(self) -> None:
        """Answer the question in work, then the one that waits, until none does."""
        while (key := self._working) is not None:
            try:
                found = follow_step(key[0])
            except UsageError as reason:
                found = OwnAnswer("refused", str(reason))
            except Exception:  # a fault of one step must not end all later ones
                logging.getLogger(__name__).exception("a model of the user's own could not be followed")
                found = OwnAnswer("refused", _FAILED)
            with self._lock:
                self._found[key] = found
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)
                self._working, self._waiting = self._waiting, None


def follow_step(question: OwnQuestion) -> OwnAnswer:
    """Return the peak of a step, found now by a process of its own. Raises `UsageError`."""
    changes = () if question.batch is None else (f"training.batch_size={question.batch}",)
    untimed = "How long a step takes is not known."
    if question.device != HERE:
        peak = gpu_peak(question.model, *changes, device=question.device)
        return OwnAnswer("found", f"{headline(peak)} {untimed}", tuple(GpuPeakView(peak).blocks())[1:])
    traced = trace(question.model, *changes)
    most, memory = format_bytes(traced.peak_bytes), detect().memory_bytes
    fits = "fits" if traced.peak_bytes < memory else "does not fit"
    said = f"It {fits} this machine's memory of {format_bytes(memory)}: its tensors take {most} at the peak. {untimed}"
    return OwnAnswer("found", said, tuple(traced.report()))


def device_names() -> list[tuple[str, str]]:
    """Return the devices of the menu, by the name in an address."""
    return [(HERE, "this machine"), *((name, DEVICES[name].name) for name in ABSENT)]


def _changed(model: str) -> int:
    """Time of the last change of a function's file in nanoseconds; 0 for a module, or if there is no such file."""
    try:
        return os.stat(model.rpartition(":")[0]).st_mtime_ns
    except OSError:
        return 0
