"""Check that training moved the weights, from a digest of each initial weight, and kept the optimizer's state.

A digest is cheap, and different if a single bit differs. On a CPU it is the CRC-32 of a weight's bytes. On a GPU it is
the sum, modulo 2⁶⁴, of each element's bits times an odd number that depends on its place. So nothing is copied to the
host: at a billion parameters copies would take longer than the steps between them.
"""

from collections.abc import Mapping
from math import isfinite
from zlib import crc32

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.instruments.memory.storages import storages
from assay.parallel.dtensor import local
from assay.step.program import Step
from assay.training.checkpoints.stored import BITS

_AT_ONCE = 2**22
"""Elements that are summed at once, in int64."""
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""2⁶⁴ over the golden ratio, as a signed number: its multiples are spread over all bits (Knuth, TAOCP 3, 6.4)."""
_ROUNDS_AWAY = 4
"""Rounding may hide an update if the learning rate is at most this many units in a weight's last place."""


def digests(step: Step) -> dict[str, int]:
    """Digest of this rank's shard of every parameter, by name."""
    return {name: _digest(parameter) for name, parameter in step.named_parameters()}


def frozen_digests(step: Step) -> dict[str, int]:
    """Digests of the frozen parameters, by name."""
    return {name: one for name, one in digests(step).items() if name in step.program.weights.frozen}


def state_digests(step: Step) -> dict[str, int | float]:
    """Digest of this rank's shard of every tensor of the optimizer's state, and its numbers, by name."""
    names = {id(one): name for name, one in step.optimized}
    return {
        f"the optimizer's {key} of {names[id(parameter)]}": _bits_of(value)
        for parameter, entries in step.optimizer.state.items()
        for key, value in entries.items()
        if isinstance(value, Tensor | int | float)
    }


def unmoved_parameters(step: Step, initial: Mapping[str, int], rate: float, *, narrow: bool = True) -> list[str]:
    """Names of the parameters that are unchanged, although steps at a learning rate of `rate` would change them.

    Parameters of 16 bits are left out unless `narrow` is true.

    An expert or a router that no token used has no gradient. So without weight decay, experts and routers may stay.
    Frozen weights must stay (`frozen_that_moved`).
    """
    decays = any(group.get("weight_decay", 0.0) for group in step.optimizer.param_groups)
    return [
        name
        for name, one in step.named_parameters()
        if name not in step.program.weights.frozen
        and local(one).numel()
        and (narrow or one.element_size() > 2)
        and (decays or not (".experts." in name or ".router." in name))
        and _shows(local(one).detach(), rate)
        and initial.get(name) == _digest(one)
    ]


def never_updated(step: Step) -> set[str]:
    """Names of the parameters for which the optimizer has no state: their losses gave no gradient, or it keeps none."""
    return {name for name, one in step.named_parameters() if one not in step.optimizer.state}


def frozen_that_moved(step: Step, initial: Mapping[str, int]) -> list[str]:
    """Names of the frozen parameters that are not what they were."""
    frozen = step.program.weights.frozen
    return [name for name, one in step.named_parameters() if name in frozen and initial.get(name) != _digest(one)]


def state_fault(step: Step, updates: int, least: int | None = None) -> str:
    """Describe what is wrong with the optimizer's state after `updates` updates; empty if nothing is.

    A parameter that some losses do not use has fewer updates, but `least`, which is by default all.
    """
    counts = {float(one["step"]) for one in step.optimizer.state.values() if "step" in one}
    if wrong := sorted(one for one in counts if not (updates if least is None else least) <= one <= updates):
        return f"the optimizer's state counts {wrong[0]:g} updates where {updates} were made"
    moments: dict[str, list[bool]] = {}
    for one in step.optimizer.state.values():
        for key, value in one.items():
            if key != "step" and isinstance(value, Tensor):
                moments.setdefault(key, []).append(_has_values(value))
    empty = sorted(key for key, found in moments.items() if not any(found))
    return f"the optimizer's {empty[0]} is zero in every parameter after {updates} updates" if empty else ""


def _bits_of(value: Tensor | float) -> int | float:
    """Digest of a tensor, also of a quantized one, whose parts are digested one after the other."""
    if not isinstance(value, Tensor):
        return value
    piece = local(value)
    if not is_traceable_wrapper_subclass(piece):
        return _digest(piece)
    parts = (getattr(piece, name) for name in piece.__tensor_flatten__()[0])
    return hash(tuple(_digest(one) for one in parts if isinstance(one, Tensor)))


def _digest(parameter: Tensor) -> int:
    piece = local(parameter).detach()
    if not piece.numel():
        return 0
    if piece.is_cuda:
        return weighted_sum(piece)
    # A copy: a storage shared with NumPy can no longer be resized, and then counts as not allocated by torch.
    return crc32(piece.clone().contiguous().view(-1).view(torch.uint8).numpy().data)


def weighted_sum(tensor: Tensor) -> int:
    """Return the digest of a tensor on its own device. No change of a single element leaves it."""
    bits = tensor.contiguous().reshape(-1).view(BITS[tensor.element_size()])
    places = torch.arange(min(_AT_ONCE, len(bits)), device=bits.device)
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for number, part in enumerate(torch.split(bits, _AT_ONCE)):
        factors = (places[: len(part)] + number * _AT_ONCE) * _GOLDEN | 1
        total += (part.long() * factors).sum()
    return int(total)


def _shows(piece: Tensor, rate: float) -> bool:
    largest = float(piece.abs().max())
    return not isfinite(largest) or rate > _ROUNDS_AWAY * torch.finfo(piece.dtype).eps * largest


def _has_values(value: Tensor) -> bool:
    return any(_any_set(storage) for storage in storages(value))


def _any_set(storage: torch.UntypedStorage) -> bool:
    octets = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return not octets.numel() or bool(octets.any())
