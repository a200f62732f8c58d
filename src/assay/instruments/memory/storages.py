"""Bytes that tensors occupy: each storage counts once, however many views it has."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """Yield the storage of a tensor, or all inner storages of a wrapper subclass (sharded, quantized)."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if isinstance(inner, torch.Tensor):  # a sharded tensor also names its mesh
                yield from storages(inner)
    else:
        yield tensor.untyped_storage()


def identity(storage: torch.UntypedStorage) -> int:
    """A number unique among live storages. It may be reused after the storage is freed, so keep it no longer."""
    return int(storage._cdata)


def distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Sum of the bytes of the tensors' distinct storages."""
    found = [storage for tensor in tensors for storage in storages(tensor)]
    return sum({identity(storage): storage.nbytes() for storage in found}.values())


def bytes_by_dtype(tensors: Iterable[torch.Tensor]) -> dict[str, int]:
    """Bytes of tensors by dtype; a sharded tensor counts whole."""
    found: Counter[str] = Counter()
    for one in tensors:
        found[dtype_name(one.dtype)] += one.numel() * one.element_size()
    return dict(found)


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype as in ledgers and records: ``"float32"``."""
    return str(dtype).removeprefix("torch.")
