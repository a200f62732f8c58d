"""A script under several settings of torch's caching allocator: one run for each, on the same absent GPU.

Tensors request nearly the same under all settings, and the allocator reserves more or less for them. Sizes that differ
from step to step matter most: a block that was cut for one size may fit no later one. The settings are those of
`PYTORCH_ALLOC_CONF` (docs.pytorch.org/docs/stable/notes/cuda.html, "Optimizing memory usage").
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.absent.script_answer import AbsentAnswer
from assay.absent.toolchain import ALLOCATOR_VARIABLES, check_settings
from assay.errors import UsageError
from assay.estimator.memory_fit import MemoryFit
from assay.records.status import Exit, Status

DEFAULT = ""
USUAL = (
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
    "per_process_memory_fraction:0.9,garbage_collection_threshold:0.6",
)
"""Settings that are compared if the user names none. Torch collects garbage only if a fraction below 1 is stated."""
_ORDER = (MemoryFit.YES, MemoryFit.CONDITIONAL, MemoryFit.BARELY)


@dataclass(frozen=True)
class AllocatorRun:
    """The script under one setting."""

    settings: str
    """Text for `PYTORCH_ALLOC_CONF`; empty for torch's defaults."""
    answer: AbsentAnswer

    @property
    def reserved_bytes(self) -> int | None:
        """Highest reserved memory; None if the device was not used."""
        return self.answer.peak.reserved_bytes if self.answer.peak else None

    @property
    def unused(self) -> float | None:
        """Share of the highest reserved memory that exceeds the highest request: fragments, and blocks in stock."""
        peak = self.answer.peak
        return 1 - peak.requested_bytes / peak.reserved_bytes if peak and peak.reserved_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {"settings": self.settings, "unused_share": self.unused, **self.answer.to_dict()}


@dataclass(frozen=True)
class AllocatorRuns:
    """Answers of all settings; the first has torch's defaults."""

    runs: tuple[AllocatorRun, ...]

    @property
    def default(self) -> AllocatorRun:
        """The run with torch's defaults."""
        return self.runs[0]

    @property
    def least(self) -> AllocatorRun | None:
        """The run that fits with the least reserved memory, the first of equals; None if none fits."""
        for fit in _ORDER:
            fitting = [one for one in self.runs if one.answer.fit is fit]
            if fitting:
                return min(fitting, key=lambda one: one.reserved_bytes or 0)
        return None

    @property
    def status(self) -> Status:
        """Status of the run that is shown first: the one with the least memory, or else the default's."""
        return (self.least or self.default).answer.status

    @property
    def exit_code(self) -> Exit:
        """Exit code of the command: done if the script fits with one of the settings."""
        if any(one.answer.status is Status.INTERRUPTED for one in self.runs):
            return Exit.INTERRUPTED
        return (self.least or self.default).answer.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Return the settings with the least memory, and the figures of every run."""
        least = self.least
        return {
            "device": self.default.answer.device.name,
            "least": None if least is None else least.settings,
            "by_settings": [one.to_dict() for one in self.runs],
        }


def chosen_settings(own: Sequence[str]) -> tuple[str, ...]:
    """Return the settings to compare: torch's defaults, and those that the user names, or else the usual ones.

    Raises `UsageError` if one asks for an allocator whose memory is not known, or if the environment has settings.
    """
    for name in ALLOCATOR_VARIABLES:
        if os.environ.get(name):
            raise UsageError(f"{name} is set, and a comparison sets it for each run; unset it for this command")
    for one in own:
        if ":" not in one:
            raise UsageError(f"--allocator is {one!r}; write settings such as expandable_segments:True")
        check_settings({ALLOCATOR_VARIABLES[0]: one})
    return tuple(dict.fromkeys((DEFAULT, *(own or USUAL))))


def run_allocators(settings: Sequence[str], ask: Callable[[dict[str, str]], AbsentAnswer]) -> AllocatorRuns:
    """Ask for one run under each setting, by the variables of its environment. An interrupt ends the comparison."""
    runs: list[AllocatorRun] = []
    for one in settings:
        runs.append(AllocatorRun(one, ask({ALLOCATOR_VARIABLES[0]: one} if one else {})))
        if runs[-1].answer.status is Status.INTERRUPTED:
            break
    return AllocatorRuns(tuple(runs))
