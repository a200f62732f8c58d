"""Bytes that tensors really occupy: each storage once, however many tensors are views of it."""

from collections import Counter
from collections.abc import Iterable, Iterator

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages behind a tensor: one, or for a subclass made of others (sharded, quantized) all of theirs."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if isinstance(inner, torch.Tensor):  # a sharded tensor also names its mesh
                yield from storages(inner)
    else:
        yield tensor.untyped_storage()


def identity(storage: torch.UntypedStorage) -> int:
    """A number that no other living storage has; one that is freed may hand it on, so keep it only while it lives."""
    return int(storage._cdata)


def distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the distinct storages of tensors."""
    found = [storage for tensor in tensors for storage in storages(tensor)]
    return sum({identity(storage): storage.nbytes() for storage in found}.values())


def bytes_by_dtype(tensors: Iterable[torch.Tensor]) -> dict[str, int]:
    """A spread tensor counts whole."""
    found: Counter[str] = Counter()
    for one in tensors:
        found[dtype_name(one.dtype)] += one.numel() * one.element_size()
    return dict(found)


def dtype_name(dtype: torch.dtype) -> str:
    """``"float32"``, as ledgers and records have it."""
    return str(dtype).removeprefix("torch.")
