"""Folds `predict` over a run's optimizations and replays the ledger: memory and work of a step before it runs.

Nothing here imports torch, so an estimate takes milliseconds for a model of any size.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from assay.config import ResolvedRun, Run
from assay.cost import (
    Cost,
    Timeline,
    active_parameter_count,
    baseline,
    executed_flops,
    model_flops,
    parameter_count,
    replay,
)
from assay.cost.kernels import CPU, CUDA, Gpu, Kernels, on
from assay.cost.scratch import library_scratch, scratch_by_operation
from assay.cost.simulation.allocator import Ledger
from assay.cost.simulation.reserved import Interval
from assay.cost.simulation.served import most_bytes
from assay.cost.simulation.timeline import Composed, compose_peak, peak_blocks
from assay.errors import UsageError
from assay.estimator.timing.gpu_time import gpu_time
from assay.estimator.timing.step_time import (
    SHEET_FACTORS,
    StepTime,
    affine,
    at_depth,
    error_factor,
    from_times,
    serving_times,
    step_seconds,
)
from assay.hardware import Accelerator, Machine, Rates
from assay.hardware.detect import release, torch_version
from assay.hardware.devices import DEVICES, LIMITS, peak_flops
from assay.hardware.kernel_seconds import MEASURED_ON
from assay.hardware.rates import thread_count
from assay.optimizations import check, mesh_of, optimizations_of, resolve_run, trained_model


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage meanwhile, as a context or a decorator.

    Ledgers have no cycles. Looking through them takes a tenth of the time of an estimate, and half of that of a search.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def kernels_of(machine: Machine) -> Kernels:
    """Return the kernels of the first GPU of a machine, by the installed torch."""
    installed = torch_version()
    return on(gpu_of(machine), *([] if installed is None else [release(installed)]))


def gpu_of(machine: Machine) -> Gpu:
    """Return the first GPU of a machine.

    Its number of multiprocessors, if that is not known, is the largest of its capability. A GPU of which nothing is
    known, or whose capability is not, counts as a Hopper, which takes the most.
    """
    one = next(iter(machine.accelerators), Accelerator(name="", memory_bytes=0))
    capability = one.compute_capability
    alike = [found.multiprocessors or 0 for found in DEVICES.values() if found.capability == capability]
    count = one.multiprocessors or max(alike, default=0)
    if capability is None or capability not in LIMITS or not count:
        assert CUDA.gpu is not None
        return CUDA.gpu
    return Gpu(capability, count, LIMITS[capability].threads)


_COMPILED_LESS, _COMPILED_MORE = 0.01, 0.06
"""Shares by which the peak of code compiled for a GPU may be lower and higher than the ledger's.

Drawn runs on an absent H200 were up to 4.9 % higher (`benchmarks/ledger_peaks.py --compiled`). A real one was up to
0.8 % lower.
"""


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of one optimizer step on one device."""

    run: ResolvedRun
    machine: Machine
    cost: Cost

    @cached_property
    def composed(self) -> Composed:
        """The replayed step, with the parts of its instants."""
        with without_collection():
            return compose_peak(self.cost)

    @property
    def timeline(self) -> Timeline:
        """Live bytes at each instant of the step."""
        return self.composed.timeline

    @cached_property
    def requested_bytes(self) -> Interval:
        """Most bytes that tensors and workspaces ask of the device's allocator at once, between two bounds.

        They differ where another stream copies tensors, which may be done at once, or when the step ends. They also
        differ for code that is compiled for a GPU, because the ledger follows the code for a CPU.
        """
        least = most = self.timeline.requested.nbytes
        if self.cost.copied_beside:
            most = replay(self.cost, Ledger(live=self.cost.held_bytes, late=True)).requested.nbytes
        if self.machine.device(self.run.device) == "cuda" and any(one.compiled for one in self.cost.tape):
            return Interval(round(least * (1 - _COMPILED_LESS)), round(most * (1 + _COMPILED_MORE)))
        return Interval(least, most)

    @cached_property
    def peak_parts(self) -> dict[str, int]:
        """Bytes of the parts of the peak, by name; they sum to the peak."""
        return self.composed.parts(self.timeline.peak)

    @cached_property
    def library_scratch_bytes(self) -> int | None:
        """Most bytes that the CPU's library may allocate at once in addition to the tensors; None if unknown."""
        if self.machine.device(self.run.device) != "cpu":
            return None
        threads = thread_count(self.machine, self.run.threads)
        return library_scratch(self.cost, self.machine.instruction_set, threads)

    @cached_property
    def most_bytes(self) -> int:
        """Most bytes that the device's allocator may need in a step, without what it keeps for later.

        It is the highest sum of tensors alive, the rounding of each by the allocator, and the scratch of the operation
        that runs.
        """
        if self.machine.device(self.run.device) != "cpu":
            return most_bytes(self.cost, {}, on_gpu=True)
        threads = thread_count(self.machine, self.run.threads)
        scratch = scratch_by_operation(self.cost, self.machine.instruction_set, threads)
        return most_bytes(self.cost, scratch or {}, on_gpu=False)

    @property
    def peak_blocks(self) -> list[dict[str, int | str]]:
        """Blocks alive at the peak on one GPU, as values of `PeakBlock`; empty on a CPU, whose allocator tells none."""
        if self.run.ranks > 1 or self.machine.device(self.run.device) != "cuda":
            return []
        blocks = peak_blocks(self.cost, self.timeline.peak.nbytes).items()
        return [{"nbytes": nbytes, "count": count, "made": part} for (nbytes, part), count in blocks]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return parameter_count(trained_model(self.run))

    @property
    def active_parameters(self) -> int:
        """Number of parameters that compute one token."""
        return active_parameter_count(trained_model(self.run))

    @property
    def adapter_parameters(self) -> int:
        """Number of parameters that are trained beside frozen weights; 0 if the weights themselves are trained."""
        return sum(one.elements for one in self.cost.trained.values()) if self.cost.backward.frozen else 0

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients that are alive after backward, until the update."""
        return self.cost.gradient_bytes

    @property
    def step_flops(self) -> int:
        """FLOPs executed by one optimizer step, including recomputation."""
        return sum(self.flops.values())

    @cached_property
    def flops(self) -> dict[str, int]:
        """FLOPs executed by one optimizer step, by the dtype that computes them."""
        return executed_flops(self.cost)

    @property
    def model_flops(self) -> int:
        """FLOPs that the model needs without recomputation: the numerator of MFU."""
        return model_flops(self.cost)

    @cached_property
    def step_time(self) -> StepTime | None:
        """Time of the step: from timed steps of few blocks, or `untimed`; None if no rate is known."""
        times, layers = serving_times(self.run, self.machine), self.run.model.n_layer
        if times is not None:
            small = tuple(_ledger(at_depth(self.run, depth), self.machine) for depth in times.depths)
            if affine(self.cost, small, layers):
                return from_times(times, layers)
        return self.untimed

    @cached_property
    def untimed(self) -> StepTime | None:
        """Time of the step by kernels on a GPU of a datasheet, else by a roofline; None if no rate is known.

        A technique whose time is `unseen` leaves the roofline.
        """
        seen = not any(one.unseen for one in optimizations_of(self.run))
        known = gpu_time(self.cost, self.sheet) if self.sheet is not None and seen else None
        if known is not None or self.roofline_seconds is None:
            return known
        factors = None if self.sheet is None else SHEET_FACTORS
        return StepTime(self.roofline_seconds, factor=self.roofline_factor, factors=factors)

    @cached_property
    def roofline_seconds(self) -> float | None:
        """Seconds of the step's work at the rates of the run's device; None if a rate was not measured."""
        return None if self._rates is None else step_seconds(self.cost, self._rates)

    @property
    def roofline_factor(self) -> float | None:
        """Up to how many times as long or as short a step is, in 95 % of measured cases; None if it is not known."""
        return None if self._rates is None else error_factor(self._rates)

    @property
    def _rates(self) -> Rates | None:
        return self.machine.rates.get(self.machine.device(self.run.device))

    @property
    def sheet(self) -> Rates | None:
        """Peaks of a datasheet, if the rates of the run's device are only these; None for measured or unknown rates."""
        return self._rates if self._rates is not None and self._rates.specified else None

    @property
    def unrated(self) -> tuple[str, ...]:
        """Number formats of its products for which the rates of the run's device have none."""
        known = () if self._rates is None else self._rates.matmul_flops
        return tuple(sorted(set(self.flops) - set(known)))

    @property
    def step_seconds(self) -> float | None:
        """Seconds of the step; None if it is not predicted."""
        return None if self.step_time is None else self.step_time.seconds

    def predicted(self) -> dict[str, Any]:
        """Values of a run's `predicted` record; None for figures that are not predicted."""
        return {
            "tensors_peak_bytes": self.timeline.peak.nbytes,
            "tensors_peak_instant": self.timeline.peak.label,
            "peak_blocks": self.peak_blocks,
            "library_scratch_bytes": self.library_scratch_bytes,
            "memory": self.composed.over_step(),
            "saved_bytes": self.timeline.saved_bytes,
            "step_flops": self.step_flops,
            "model_flops": self.model_flops,
            "peak_flops": peak_flops(self.machine, self.machine.device(self.run.device), self.flops),
            "step_seconds": self.step_seconds,
            "step_seconds_margin": None if self.step_time is None else self.step_time.margin,
            "under_load": self.step_time is not None and self.step_time.under_load,
            "roofline_seconds": self.roofline_seconds,
            "roofline_factor": self.roofline_factor,
        }

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values for JSON."""
        return {
            **self.predicted(),
            "peak_parts": self.peak_parts,
            "requested_peak_bytes": None if self.cost.replayed else asdict(self.requested_bytes),
            "parameters": self.parameters,
            "active_parameters": self.active_parameters,
            "adapter_parameters": self.adapter_parameters,
            "tokens_per_step": self.run.tokens_per_step,
            "parameter_bytes": self.cost.parameter_bytes,
            "gradient_bytes": self.gradient_bytes,
            "optimizer_state_bytes": self.cost.optimizer_state_bytes,
            "waiting_batch_bytes": self.cost.batch.waiting * self.cost.batch.nbytes,
            "flops_by_dtype": self.flops,
            "instants": [{"instant": str(moment), "bytes": moment.nbytes} for moment in self.timeline.instants],
            **self._of_sheet(),
        }

    def _of_sheet(self) -> dict[str, Any]:
        """Name of a device that is known by its datasheet only, and how many times as long as its roofline a step is.

        With the seconds of host and device, if they are predicted, and the device whose operators were measured.
        """
        if self.sheet is None:
            return {}
        found = {"device": self.machine.accelerators[0].name, "times_as_long": SHEET_FACTORS}
        apart = None if self.step_time is None else self.step_time.apart
        if apart is None:
            return {"datasheet": found}
        host, device = apart
        return {"datasheet": found | {"operators_of": MEASURED_ON, "host_seconds": host, "device_seconds": device}}


@without_collection()
def estimate(asked: Run, machine: Machine, rank: int = 0) -> Estimate:
    """Predict one step of a run on one device of `machine`: that of `rank`, if a mesh divides the step.

    Raises `UsageError` if the vocabulary size is not known yet. Raises `Unavailable` or `Conflict` if an optimization
    cannot be applied, and `Unpredicted` if an optimization has no prediction yet.
    """
    run = resolve_run(asked.with_vocabulary())
    if run.model.vocab_size is None:
        raise UsageError(
            f"the size of the {run.data.tokenizer!r} vocabulary is known once the corpus is prepared; "
            "set model.vocab_size, or run `assay data prepare` first"
        )
    check(run, machine)
    return Estimate(run, machine, _ledger(run, machine, rank))


def _ledger(run: ResolvedRun, machine: Machine, rank: int = 0) -> Cost:
    cost = bare_ledger(run, machine, rank)
    for optimization in optimizations_of(run):
        cost = optimization.predict(cost, run, machine)
    return cost


def bare_ledger(run: ResolvedRun, machine: Machine, rank: int = 0) -> Cost:
    """Return the ledger of a run before its optimizations change it.

    Raises `UsageError` for a model of the user's own, whose operations no ledger knows.
    """
    if run.model.own is not None:
        raise UsageError(
            f"no ledger knows the operations of {run.model.own}; assay estimate {run.model.own} --trace follows them"
        )
    kernels = kernels_of(machine) if machine.device(run.device) == "cuda" else CPU
    return replace(baseline(run, kernels), mesh=mesh_of(run), rank=rank)
