"""A step of the ledger on one GPU that was not timed: its kernels, the host that launches them, and both as a queue.

Kernels have the times of operators that were measured on an H200 (`hardware.kernel_seconds`). The host takes longer for
an operator of a model than for one in a chain, because it runs modules of Python around it. How much longer, and what a
recomputed module costs it besides, was fitted on two steps (docs/measured/predicted_times.md).

In the queue of a device the host launches kernels one after the other, and the device runs them in the same order. The
host goes on as soon as a kernel is queued. A kernel begins when it is queued and the one before it has ended. Where the
host waits, it goes on when all that is queued has ended. So a step takes as long as the slower of both, and what the
host does after a wait is added.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from assay.cost import Cost, Operation
from assay.cost.operation import Gradient, alter
from assay.estimator.timing.launched_kernels import backward, forward, gradient_sum
from assay.hardware.kernel_seconds import (
    BACKWARD_LAUNCH_SECONDS,
    COMPILED,
    LAUNCH_SECONDS,
    PRODUCT_LAUNCH_SECONDS,
    UPDATE_LAUNCH_SECONDS,
    Speeds,
)
from assay.hardware.measured_kernels import FUSED, LISTED, PLAIN, PRODUCT, Kernel


class Queued(NamedTuple):
    """One launch."""

    host: float
    """Seconds of the host until it is queued."""
    device: float
    """Seconds of its kernel; 0: it has none."""
    waits: bool = False
    """True if the host then waits for the device."""


WAIT = Queued(0.0, 0.0, waits=True)
"""The host reads a number."""


class PlayedQueue(NamedTuple):
    """A queue that has been played."""

    seconds: float
    """Seconds until host and device have ended."""
    host: float
    """Seconds in which the host launched."""
    device: float
    """Seconds in which the device worked."""


def play(queue: Iterable[Queued]) -> PlayedQueue:
    """Play a queue on an idle device."""
    host = device = launching = working = 0.0
    for launch, kernel, waits in queue:  # a step of a deep model has tens of thousands of launches
        host += launch
        launching += launch
        if kernel:
            device = (device if device > host else host) + kernel
            working += kernel
        if waits and device > host:
            host = device
    return PlayedQueue(max(host, device), launching, working)


def play_repeated(queue: Iterable[Queued], times: int) -> PlayedQueue:
    """Play a queue without waits so many times in a row, and wait once at the end, in the time of playing it once.

    A round ends when the device has run its kernels after those of the round before. It ends no earlier than on an
    idle device that begins with the host.
    """
    host = working = alone = 0.0
    for launch, kernel, _ in queue:
        host += launch
        if kernel:
            alone = (alone if alone > host else host) + kernel
            working += kernel
    ended = 0.0
    for number in range(times):
        ended = max(ended + working, number * host + alone)
    return PlayedQueue(max(times * host, ended), times * host, times * working)


MODULES = 2.1
"""Seconds of the host for an operator of a model, over those of one in a chain; fitted."""
RECOMPUTED_SECONDS = 1.36e-4
"""Seconds of the host for each tensor that a recomputed module saves, besides those of its operators; fitted."""
_REPLAY_LAUNCHES = 4
"""Launches of a micro-batch that is replayed: copies of ids and targets, the graph, a copy of the loss."""
_LIST_LAUNCHES = 8
"""Launches of an update over lists of all tensors."""


Launches = tuple[Queued, ...]


@dataclass(frozen=True)
class GpuStep:
    """The launches of one step."""

    passes: Launches
    """Forwards and backwards of all micro-batches, and updates within them."""
    update: Launches
    read_every: int
    """Steps whose figures are read together; with 1 the host also waits before each update."""

    @property
    def bounded_by_host(self) -> bool:
        """True if the device waits for the host in forward and backward."""
        return sum(one.host for one in self.passes) > sum(one.device for one in self.passes)

    def played(self) -> PlayedQueue:
        """Play the steps between two reads, and return the mean of one."""
        if self.read_every == 1:
            return play((*self.passes, WAIT, *self.update, WAIT))
        found = play_repeated((*self.passes, *self.update), self.read_every)
        return PlayedQueue(*(one / self.read_every for one in found))


def gpu_step(cost: Cost, speeds: Speeds) -> GpuStep:
    """Return the launches of a step. Raises `KeyError` if the device has no products of a dtype of it."""
    first, further = passes(cost, speeds)
    passing, updating = first + further * (cost.micro_batches - 1), tuple(update(cost, speeds))
    if cost.optimizer.in_backward:
        return GpuStep((*passing, *updating), (), cost.read_every)
    return GpuStep(passing, updating, cost.read_every)


def passes(cost: Cost, speeds: Speeds) -> tuple[Launches, Launches]:
    """Launches of forward and backward of the first micro-batch, and of each further one, which adds gradients."""
    first = tuple(_micro_batch(cost, speeds))
    further: Launches = ()
    if cost.micro_batches > 1:
        host = MODULES * BACKWARD_LAUNCH_SECONDS
        trained = (one for name, one in cost.parameters.items() if name not in cost.backward.frozen)
        sums = (gradient_sum(one.nbytes, one.dtype) for one in trained)
        further = (*first, *(Queued(host, speeds.seconds(kernel)) for kernel in sums))
    return (_replayed(first), _replayed(further)) if cost.replayed else (first, further)


def _replayed(launches: Launches) -> Launches:
    """One launch of all kernels."""
    whole = sum(one.device for one in launches)
    return (Queued(_REPLAY_LAUNCHES * LAUNCH_SECONDS, whole),) if launches else ()


def _micro_batch(cost: Cost, speeds: Speeds) -> Iterator[Queued]:
    every = [_forward(operation, cost, speeds) for operation in cost.tape]
    for launches in every:
        yield from launches
    ends = {one.last: one for one in cost.lifetimes.segments}
    known: set[str] = set()
    for index in range(len(cost.tape) - 1, -1, -1):
        if (segment := ends.get(index)) is not None:
            for place in sorted(segment.runs):
                yield Queued(RECOMPUTED_SECONDS * len(cost.tape[place].saves), 0.0)
                yield from every[place]
        yield from _backward(index, cost, speeds, known)


def _forward(operation: Operation, cost: Cost, speeds: Speeds) -> list[Queued]:
    host, seconds = MODULES * LAUNCH_SECONDS, speeds.seconds
    if not operation.compiled:
        return [Queued(host, seconds(kernel)) for kernel in forward(operation, cost)]
    eager = Queued(COMPILED * host * len(list(forward(_eager(operation), cost))), 0.0)
    return [eager, *[Queued(0.0, seconds(kernel)) for kernel in forward(operation, cost)]]


def _backward(index: int, cost: Cost, speeds: Speeds, known: set[str]) -> list[Queued]:
    operation, host, seconds = cost.tape[index], MODULES * BACKWARD_LAUNCH_SECONDS, speeds.seconds
    if not operation.compiled:
        return [Queued(host, seconds(kernel)) for kernel in gradients(cost, index, known)]
    eager = Queued(COMPILED * host * len(list(backward(_eager(operation), cost))), 0.0)
    return [eager, *[Queued(0.0, seconds(kernel)) for kernel in backward(operation, cost)]]


def _eager(operation: Operation) -> Operation:
    """The operation as it runs without a compiler: it writes each result, and returns each gradient as a tensor."""
    outputs = tuple(alter(one, view_of=None) for one in operation.outputs)
    gradients = tuple(Gradient.FRESH if one is Gradient.INSIDE else one for one in operation.gradients)
    return alter(operation, compiled=False, outputs=outputs, gradients=gradients)


def gradients(cost: Cost, index: int, known: set[str]) -> Iterator[Kernel]:
    """Kernels of an operation's backward, and sums with gradients that are `known` already."""
    yield from backward(cost.tape[index], cost)
    for name, _how in cost.lifetimes.returned[index]:
        if name in known:
            one = cost.values[name]
            yield gradient_sum(one.nbytes, one.dtype)
        known.add(name)


def update(cost: Cost, speeds: Speeds) -> Iterator[Queued]:
    """Launches of the gradient norm, of clipping, and of the optimizer."""
    nbytes = cost.gradient_bytes
    for times in (1, 2) if nbytes else ():
        yield Queued(_LIST_LAUNCHES * UPDATE_LAUNCH_SECONDS, speeds.seconds(_list(LISTED, times * nbytes)))
    rule = cost.optimizer.rule
    for product in rule.products(cost.updated):
        shape = (product.rows, product.inner, product.columns)
        kernel = Kernel(PRODUCT, product.dtype, product.nbytes / product.times, product.flops / product.times, shape)
        yield from (Queued(PRODUCT_LAUNCH_SECONDS, speeds.seconds(kernel)),) * product.times
    traffic = rule.traffic(cost.updated)
    if traffic.launches:
        count = round(traffic.launches)
        each = speeds.seconds(Kernel(PLAIN, "float32", traffic.nbytes / count))
        yield from (Queued(UPDATE_LAUNCH_SECONDS, each),) * count
    else:
        kind = FUSED if rule.counts_on_gpu else LISTED
        yield Queued(_LIST_LAUNCHES * UPDATE_LAUNCH_SECONDS, speeds.seconds(_list(kind, traffic.nbytes)))


def _list(kind: str, nbytes: float) -> Kernel:
    return Kernel(kind, "float32", nbytes)
