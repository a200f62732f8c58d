"""Values that a trace knows: small tensors of the host, and small tensors of the device that are made of known numbers.

Models draw numbers and compute tables on the CPU, such as whether a layer is left out. These are computed for real, as
in training, so a decision by them is the real one. A tensor is real if it and all that it is made from are on the CPU,
and it has at most `MOST` elements. Weights that are made on the CPU and moved are larger, so they take no memory.

Models also read masks and positions that they have just made on the device, as ``(positions == 0).all()``. A small
fake tensor of the device therefore has a twin on the CPU, as long as it follows from known numbers. Random numbers of
the device and memory that is not filled are not known, and neither is what an unknown tensor has been written into.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from assay.errors import UsageError
from assay.fake.reads import known_twin, place_now, set_twin, spoil

MOST = 2**16
"""Most elements of a tensor that keeps its values."""
_UNFILLED = ("aten.empty", "aten.new_empty")
"""Beginnings of the names of operators that do not fill what they make."""
_CPU = torch.device("cpu")


class HostTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes operators on small host tensors for real, and keeps twins. It is entered inside of the fake mode."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if any(isinstance(one, FakeTensor) for one in given):
            if func._schema.is_mutable:
                _check_target(func, args)
            return _with_twin(func, args, kwargs, given)
        if any(one.is_meta for one in given):
            return func(*args, **kwargs)
        if torch.device(kwargs.get("device") or "cpu") != _CPU:
            return _with_twin(func, args, kwargs, given)
        if not given:
            made = func(*args, **kwargs)
            if not all(one.device == _CPU and one.numel() <= MOST for one in tree_leaves(made) if _is(one)):
                return made
        with unset_fake_temporarily():
            return func(*args, **kwargs)


def _with_twin(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor]) -> Any:
    """Return the fake result; its twin is computed from those of the arguments, if all of them are known."""
    twins = [known_twin(one) for one in given]
    made = func(*args, **kwargs)
    results = [one for one in tree_leaves(made) if _is(one)]
    unfilled = str(func).startswith(_UNFILLED) or torch.Tag.nondeterministic_seeded in func.tags
    small = all(one.numel() <= MOST for one in (*given, *results))
    if unfilled or not small or not results or any(one is None for one in twins):
        if func._schema.is_mutable:
            spoil(given)
        return made
    on_cpu = tree_map_only(Tensor, known_twin, (args, kwargs))
    if "device" in on_cpu[1]:
        on_cpu[1]["device"] = _CPU
    with unset_fake_temporarily():
        twin = func(*on_cpu[0], **on_cpu[1])
    for one, other in zip(results, (one for one in tree_leaves(twin) if _is(one)), strict=True):
        set_twin(one, other)
    return made


def _is(one: Any) -> bool:
    return isinstance(one, Tensor)


def _check_target(func: OpOverload, args: tuple[Any, ...]) -> None:
    """Raise `UsageError` if a real tensor is to take values that nobody computes."""
    for argument, one in zip(func._schema.arguments, args, strict=False):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and _is(one) and not isinstance(one, FakeTensor) and one.numel():
            raise UsageError(
                f"{place_now()} writes values of the device into a tensor of the host ({func}), which a trace cannot "
                "follow; run the step on an absent GPU (--absent)"
            )
