"""The answer that follows from a run on an absent GPU: whether it fits, and what could not be told.

A peak is withdrawn if the shape of a tensor hangs on a value that the device would have computed, and *fits* with it.
Where a library's workspace is not known, *fits* has a condition.

The time of a step is predicted from the operators that the observer kept of it.
"""

from collections.abc import Sequence
from functools import cached_property
from statistics import median_low
from typing import NamedTuple

from assay.absent.gpus import ABSENT, AbsentDevice, with_context
from assay.absent.launch import Launched
from assay.absent.observation import DevicePeaks, Observation, Read, Unknown
from assay.estimator.memory_fit import MemoryFit
from assay.estimator.timing.dispatched import operator_launches, untimed_operators
from assay.estimator.timing.gpu_step import WAIT, play
from assay.estimator.timing.gpu_time import margin_on
from assay.estimator.timing.step_time import StepTime
from assay.hardware.kernel_seconds import speeds_of
from assay.records.status import Exit, Status


def key_of(device: AbsentDevice) -> str:
    """Return the key of a device among datasheets."""
    return next(key for key, one in ABSENT.items() if one == device)


def step_time(seen: Observation | None, device: AbsentDevice) -> StepTime | str | None:
    """Return the time of a step on a device, or why there is none; None if no times were asked for.

    The queue ends with a wait, so the device is idle when a step begins.
    """
    kept = None if seen is None else seen.operators
    if seen is None or not seen.timed:
        return None
    if kept is None:
        return "the third step had no operators to keep: it was not reached, or its code is compiled or captured"
    if missing := untimed_operators(kept.calls):
        return f"nobody has measured {', '.join(missing)}"
    speeds = speeds_of(key_of(device))
    try:
        played = play((*operator_launches(kept.calls, speeds), WAIT))
    except KeyError as dtype:
        return f"the datasheet has no products in {dtype.args[0]}"
    margin = margin_on(speeds, by_host=played.host > played.device)
    return StepTime(played.seconds, margin, apart=(played.host, played.device))


class PerStep(NamedTuple):
    """One count of a step: the median of all steps after the first, and its range."""

    median: int
    least: int
    most: int


class AbsentAnswer:
    """The answer to one run."""

    def __init__(self, device: AbsentDevice, count: int, command: Sequence[str], launched: Launched) -> None:
        self.device, self.device_count, self.command = device, count, tuple(command)
        self.returncode = launched.returncode
        self.observations = launched.observations

    @cached_property
    def observation(self) -> Observation | None:
        """Findings of the process with the highest peak; None if no process was observed."""
        return self.observations[0] if self.observations else None

    @property
    def peak(self) -> DevicePeaks | None:
        """Peaks of the device with the most reserved memory; None if none was used."""
        found = self.observation.devices if self.observation else ()
        return max(found, key=lambda one: one.reserved_bytes, default=None)

    @property
    def visible_bytes(self) -> int:
        """Memory of the device."""
        return self.device.visible_bytes

    @property
    def in_use_bytes(self) -> tuple[int, int] | None:
        """Least and most memory in use on the device, with the context; None if the device was not used."""
        if self.peak is None:
            return None
        return with_context(max(self.peak.reserved_bytes, self.peak.given_out_bytes))

    @property
    def sizes(self) -> tuple[Read, ...]:
        """Reads that a shape hangs on and whose value nobody stated; each withdraws the peak."""
        return tuple(one for one in self._reads if one.kind == "size" and not one.stated)

    @property
    def whole(self) -> tuple[Read, ...]:
        """Reads of whole numbers that nobody stated; sizes may hang on them, which cannot be seen."""
        return tuple(one for one in self._reads if one.kind == "whole" and not one.stated)

    @property
    def _reads(self) -> tuple[Read, ...]:
        return self.observation.reads if self.observation else ()

    @property
    def unknown(self) -> tuple[Unknown, ...]:
        """Uses of libraries whose workspace is not known."""
        return tuple(one for one in self.observation.unknown if one.runs) if self.observation else ()

    @property
    def refused(self) -> tuple[Unknown, ...]:
        """Uses of libraries that an absent GPU does not have."""
        return tuple(one for one in self.observation.unknown if not one.runs) if self.observation else ()

    @property
    def out_of_memory(self) -> bool:
        """True if the script ended because the device's memory was exhausted."""
        ended = self.observation.ended if self.observation else None
        return ended is not None and ended.error == "OutOfMemoryError"

    @property
    def failed(self) -> bool:
        """True if the script ended by a fault of its own, a signal or an interrupt, so its peak may be too low."""
        ended = self.observation.ended if self.observation else None
        return self.returncode != 0 or ended is None or ended.how not in ("finished", "steps")

    @property
    def fit(self) -> MemoryFit:
        """Whether the script fits the device."""
        if self.out_of_memory:
            return MemoryFit.NO
        in_use = self.in_use_bytes
        if in_use is None:
            return MemoryFit.UNKNOWN if self.failed else MemoryFit.UNUSED
        assert self.observation is not None
        if self.sizes or self.failed or self.observation.refused:
            return MemoryFit.UNKNOWN
        if in_use[1] > self.device.visible_bytes:
            return MemoryFit.BARELY
        return MemoryFit.CONDITIONAL if self.unknown else MemoryFit.YES

    @property
    def status(self) -> Status:
        """Status of the run."""
        if self.out_of_memory:
            return Status.OUT_OF_MEMORY
        how = self.observation.ended.how if self.observation else "running"
        if how == "interrupted" or self.returncode in (130, -2):
            return Status.INTERRUPTED
        return Status.KILLED if self.failed else Status.DONE

    @property
    def exit_code(self) -> Exit:
        """Exit code of the command; the memory of the device is a limit."""
        return Exit.UNMET if self.fit is MemoryFit.NO else self.status.exit_code

    @cached_property
    def step_time(self) -> StepTime | str | None:
        """Predicted time of a step, or why there is none; None if no times were asked for."""
        return step_time(self.observation, self.device)

    def _times(self) -> dict[str, object]:
        time = self.step_time
        if not isinstance(time, StepTime):
            return {} if time is None else {"no_step_time": time}
        host, device = time.apart or (None, None)
        known: dict[str, object] = {"step_seconds": time.seconds, "step_seconds_margin": time.margin}
        return known | {"host_seconds": host, "device_seconds": device}

    def per_step(self, name: str) -> PerStep | None:
        """Return a count of one step; None without a step. The first step is left out if there are others."""
        steps = self.observation.by_step if self.observation else ()
        later = [one[name] for one in (steps[1:] or steps)]
        return PerStep(median_low(later), min(later), max(later)) if later else None

    def to_dict(self) -> dict[str, object]:
        """Return the answer as plain values."""
        peak, in_use = self.peak, self.in_use_bytes
        names = self.observation.counts if self.observation else ()
        return {
            "device": self.device.name,
            "devices": self.device_count,
            "memory_bytes": self.device.visible_bytes,
            "command": list(self.command),
            "status": self.status.value,
            "fits": self.fit.value,
            "peak_is_withdrawn": bool(self.sizes),
            "if_no_size_hangs_on": [one.short for one in self.whole],
            "requested_peak_bytes": peak.requested_bytes if peak else None,
            "allocated_peak_bytes": peak.allocated_bytes if peak else None,
            "reserved_peak_bytes": peak.reserved_bytes if peak else None,
            "in_use_bytes": list(in_use) if in_use else None,
            "per_step": {name: found._asdict() for name in names if (found := self.per_step(name))},
            **self._times(),
            "processes": [one.model_dump(exclude={"operators"}) for one in self.observations],
        }
