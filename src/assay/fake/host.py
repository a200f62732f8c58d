"""Small tensors on the host, which keep their values while tensors on the device are fake.

Models draw numbers and compute tables on the CPU, such as whether a layer is left out. These are computed for real, as
in training, so a decision by them is the real one. A tensor is real if it and all that it is made from are on the CPU,
and it has at most `MOST` elements. Weights that are made on the CPU and moved are larger, so they take no memory.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assay.errors import UsageError
from assay.fake.reads import place_now

MOST = 2**16
"""Most elements of a tensor that keeps its values."""


class HostTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes operators on small host tensors for real. It is entered inside of the fake mode."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if given and any(isinstance(one, FakeTensor) for one in given):
            if func._schema.is_mutable:
                _check_target(func, args)
            return func(*args, **kwargs)
        if kwargs.get("device") not in (None, torch.device("cpu"), "cpu") or any(one.is_meta for one in given):
            return func(*args, **kwargs)
        if not given:
            made = func(*args, **kwargs)
            if not all(one.device.type == "cpu" and one.numel() <= MOST for one in tree_leaves(made) if _is(one)):
                return made
        with unset_fake_temporarily():
            return func(*args, **kwargs)


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
