"""The predicted time of a step: from steps of the same model with few blocks if they were timed, else by a roofline.

`assay estimate --calibrate`, comparisons and studies time such steps (`launch.step_times`). They are kept under a
digest of every setting on which the time of a step depends, except the number of blocks. So a study over depths, rates
or seeds shares them.

An extrapolation over depth is only allowed if the ledger agrees that the work is affine in it: FLOPs, parameters and
operations of the whole step must be those that the small depths extrapolate to.

In the roofline an operation takes the longer of its arithmetic and its memory traffic (Williams, Waterman and Patterson
2009). Arithmetic is FLOPs over the rate of products; traffic is bytes of arguments and results over a bandwidth. Both
are those of the operator and its size, if these were measured (`OperatorSpeed`). So narrow products, exponentials,
fused attention, and copies in caches or to fresh memory have speeds of their own. Elsewhere, as on GPUs, the peaks of a
large product and of a large copy count. Caches and narrow products are then left out. On a CPU the time to launch an
operation is added, because host and device are one. An accelerator's host works ahead, so the longer of all launches
and all work counts for the whole step. Every report prints the prediction next to the measured time.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp

from assay.config import ResolvedRun, Spec
from assay.cost import Cost, Operation, executed_flops, multiplying, recomputed_positions
from assay.cost.attention_tape import FLASH
from assay.cost.pipeline_bubble import StageTime
from assay.hardware import Machine, Rates
from assay.hardware.detect import CALLING, MOVING, OperatorSpeed, flash_key, key_of
from assay.hardware.step_times import StepTimes, depths

OPERATORS_FACTOR, PEAKS_FACTOR = 2.2, 7.0
"""Measured over predicted seconds of a CPU's step, at most, in 95 % of the rows of docs/measured/estimator_accuracy.md.

The first is with speeds of operators (seed 5: −54 %), the second with peaks only (seed 1: −86 %)."""
SHEET_FACTORS = (1.5, 4.0)
"""Usual range of how many times as long as a roofline of a datasheet's peaks a GPU's step takes; no step takes less."""
_PRODUCT = "aten.mm"
"""Operator whose speed is that of other products which were not measured."""
REPLAY_LAUNCHES = 4
"""Launches of a micro-batch: copies of ids and targets, the graph, a copy of the loss."""


@dataclass(frozen=True)
class RooflineWork:
    """Seconds of arithmetic and traffic, and seconds of launches."""

    working: float
    launching: float

    def plus(self, other: "RooflineWork", times: float = 1.0) -> "RooflineWork":
        """Return the sum with a multiple of another."""
        return RooflineWork(self.working + times * other.working, self.launching + times * other.launching)

    def seconds(self, rates: Rates) -> float:
        """Seconds of both: one after the other on a CPU, at once where a host works ahead of its accelerator."""
        return _together(self.working, self.launching, rates)


def step_seconds(cost: Cost, rates: Rates) -> float | None:
    """Seconds of one optimizer step; None if the rate of a dtype was not measured."""
    passes = pass_work(cost, rates)
    return None if passes is None else passes.plus(update_work(cost, rates)).seconds(rates)


def error_factor(rates: Rates) -> float | None:
    """Return up to how many times as long, or as short, as its roofline a step is in 95 % of measured cases.

    None if rooflines of such rates were not held against measured steps: those of accelerators, and of datasheets.
    """
    if rates.device != "cpu":
        return None
    return OPERATORS_FACTOR if rates.operators else PEAKS_FACTOR


def pass_work(cost: Cost, rates: Rates) -> RooflineWork | None:
    """Work of all forwards and backwards of a step; None if the rate of a dtype was not measured."""
    if not multiplying(cost) <= set(rates.matmul_flops):
        return None
    again = recomputed_positions(cost)
    calling, calling_back = _calling(rates)
    working = launching = 0.0
    for index, operation in enumerate(cost.tape):
        if _only_views(operation):
            continue
        forwards = 2 if index in again else 1
        forward, backward = _operation_seconds(operation, cost, rates)
        working += forward * forwards + backward
        launching += forwards * calling + calling_back
    if cost.replayed:
        launching = REPLAY_LAUNCHES * rates.launch_seconds
    return RooflineWork(cost.micro_batches * working, cost.micro_batches * launching)


def stage_time(cost: Cost, rates: Rates, sites: tuple[str, ...]) -> StageTime:
    """Seconds of one micro-batch in the modules of a stage.

    A product with a weight spends half of its backward on the weight's gradient.
    """
    again = recomputed_positions(cost)
    forward = backward = weight = 0.0
    launches = 0
    for index, operation in enumerate(cost.tape):
        if _only_views(operation) or not operation.within(*sites):
            continue
        once, back = _operation_seconds(operation, cost, rates)
        half = back / 2 if operation.flops.forward and not cost.parameters.keys().isdisjoint(operation.inputs) else 0.0
        forward, weight = forward + once, weight + half
        backward += back - half + (once if index in again else 0.0)
        launches += 1
    calling, calling_back = _calling(rates)
    return StageTime(
        _together(forward, launches * calling, rates),
        _together(backward, launches * calling_back, rates),
        weight,
    )


def update_seconds(cost: Cost, rates: Rates) -> float:
    """Seconds of the gradient norm and the update."""
    return update_work(cost, rates).seconds(rates)


def update_work(cost: Cost, rates: Rates) -> RooflineWork:
    """Work of the gradient norm and of the update: what the optimizer reads, writes and multiplies."""
    rule = cost.optimizer.rule
    products, traffic = rule.products(cost.updated), rule.traffic(cost.updated)
    multiplying = sum(
        max(one.flops / rates.matmul_flops[one.dtype], one.nbytes / rates.bandwidth_bytes) for one in products
    )
    launches = len(cost.pieces) + traffic.launches + sum(one.times for one in products)
    moved = cost.parameter_bytes + traffic.nbytes
    return RooflineWork(moved / rates.bandwidth_bytes + multiplying, launches * rates.launch_seconds)


def _together(working: float, launching: float, rates: Rates) -> float:
    return working + launching if rates.device == "cpu" else max(working, launching)


def _operation_seconds(operation: Operation, cost: Cost, rates: Rates) -> tuple[float, float]:
    """Seconds of forward and of backward, without their launches."""
    sizes, inputs, flops = cost.sizes, operation.inputs, operation.flops
    written = sum([sizes[tensor.name] for tensor in operation.outputs if tensor.view_of is None])
    moved = sum([sizes[name] for name in inputs]) + written
    if not (flops.forward or flops.backward):
        # A compiled graph has operations that read nothing, such as the mask of a padded vocabulary.
        alone = inputs and not operation.compiled
        known = _speed(operation.name, cost.values[inputs[0]].dtype, rates) if alone else None
        # Backward reads the tensors that forward read and wrote, and writes a gradient for each.
        return _moving(moved, rates) if known is None else known.seconds(moved, moved, 2 * moved)
    forward, backward = _multiplying(operation, cost, rates)
    passing, back = _moving(moved, rates)
    return max(forward, passing), max(backward, back)


def _calling(rates: Rates) -> tuple[float, float]:
    """Seconds of the host for an operator's forward and backward."""
    known = rates.operators.get(CALLING)
    return (rates.launch_seconds, rates.backward_launch_seconds) if known is None else known.seconds(1, 1, 1)


def _moving(moved: int, rates: Rates) -> tuple[float, float]:
    """Seconds in which so many bytes are read and written."""
    known = rates.operators.get(MOVING)
    if known is None:
        return moved / rates.bandwidth_bytes, 2 * moved / rates.bandwidth_bytes
    return known.seconds(moved, moved, 2 * moved)


def _multiplying(operation: Operation, cost: Cost, rates: Rates) -> tuple[float, float]:
    """Seconds of the products of an operation."""
    first, flops = cost.values[operation.inputs[0]], operation.flops
    dtype = operation.products or first.dtype
    factor = cost.values[operation.inputs[1]] if len(operation.inputs) > 1 else first
    if operation.name == FLASH:
        size, known = factor.shape[-2], rates.operators.get(flash_key(factor.shape[-1], dtype))
    else:
        size, known = min(factor.shape[-2:]), _speed(operation.name, dtype, rates) or _speed(_PRODUCT, dtype, rates)
    if known is None:
        return flops.forward / rates.matmul_flops[dtype], flops.backward / rates.matmul_flops[dtype]
    return known.seconds(size, flops.forward, flops.backward)


def _speed(name: str, dtype: str, rates: Rates) -> OperatorSpeed | None:
    return rates.operators.get(key_of(name, dtype))


def _only_views(operation: Operation) -> bool:
    """True if an operation writes nothing."""
    return not [tensor for tensor in operation.outputs if tensor.view_of is None]


WIDE = 0.4
"""Margin from which an interval is a factor up and down."""


def spread_of(margin: float) -> tuple[float, float]:
    """Return the factors between which a time lies that has a margin."""
    return (exp(-margin), exp(margin)) if margin > WIDE else (1 - margin, 1 + margin)


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step."""

    seconds: float
    margin: float | None = None
    """Half of the interval relative to the seconds: of 95 %, if steps were timed, or what predictions by kernels were
    within. None for a roofline."""
    factor: float | None = None
    """Up to how many times as long or as short as its roofline a step is, in 95 % of measured cases.

    None for timed steps, and if no such roofline was held against measured steps."""
    under_load: bool = False
    """True if other programs used the machine while steps were timed."""
    apart: tuple[float, float] | None = None
    """Seconds of the host and of its accelerator, which work at the same time; None on a CPU and for a roofline."""
    factors: tuple[float, float] | None = None
    """Factors between which it lies, where no margin is known: of a roofline of a datasheet's peaks, or of a plan."""

    @property
    def spread(self) -> tuple[float, float] | None:
        """Factors between which the time of a step lies; None if errors of such predictions were never measured."""
        if self.margin is not None:
            return spread_of(self.margin)
        if self.factor is not None:
            return 1 / self.factor, self.factor
        return self.factors


def digest(run: ResolvedRun, device: str) -> str | None:
    """Return 16 hexadecimal digits of the settings on which the time of a step depends; None for several ranks."""
    return None if run.ranks > 1 else digests(run, device)(run.optimizations)


def digests(run: ResolvedRun, device: str) -> Callable[[Iterable[Spec]], str]:
    """Return the function that yields the digest of a run with other techniques, which leave its batch whole.

    Its stacks are in the order of application, with every field. It takes microseconds for each.
    """
    training = run.training
    decides = {
        "model": run.model.model_dump(mode="json", exclude={"n_layer", "init_from"}),
        "batch": run.sequences_per_step,
        "clips": training.gradient_clip > 0,
        "decays": training.weight_decay > 0,
        "device": device,
        "cores": run.cores,
    }
    # The key of the techniques is the last one in order, so the text of all others is a prefix.
    before = hashlib.sha256(json.dumps(decides, sort_keys=True)[:-1].encode() + b', "optimizations": [')

    def of(stack: Iterable[Spec]) -> str:
        whole = before.copy()
        texts = (json.dumps(one.model_dump(mode="json"), sort_keys=True) for one in stack)
        whole.update(f"{', '.join(texts)}]}}".encode())
        return whole.hexdigest()[:16]

    return of


def at_depth(run: ResolvedRun, layers: int) -> ResolvedRun:
    """Return the run with another number of blocks."""
    return run.model_copy(update={"model": run.model.model_copy(update={"n_layer": layers})})


def serving_times(run: ResolvedRun, machine: Machine) -> StepTimes | None:
    """Return the step times that serve a run; None if there are none."""
    found = machine.step_times.get(digest(run, machine.device(run.device)) or "")
    return found if found is not None and found.serves(run.model.n_layer) else None


def from_times(times: StepTimes, layers: int) -> StepTime:
    """Return the time of a step with so many blocks."""
    apart = times.apart(layers)
    return StepTime(times.seconds(layers), times.margin(layers), under_load=times.under_load, apart=apart)


def affine(whole: Cost, small: tuple[Cost, ...], layers: int) -> bool:
    """True if the ledger of a step is what those of the small depths extrapolate to."""
    if len(small) == 1:
        return True
    shallow, deep = map(_work, small)
    at = depths(layers)
    steps = (layers - at[0]) / (at[1] - at[0])
    return all(
        less + steps * (more - less) == found for less, more, found in zip(shallow, deep, _work(whole), strict=True)
    )


def _work(cost: Cost) -> tuple[int, int, int]:
    flops = sum(executed_flops(cost).values())
    return flops, len(cost.tape), sum(one.nbytes for one in cost.pieces.values())
