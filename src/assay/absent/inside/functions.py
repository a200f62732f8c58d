"""Functions of torch that the observer wraps, because the library of C cannot see what they mean.

`isnan` and `isinf` compare a tensor with itself, so their answers look like any other bool. `item` and `tolist` turn
numbers into Python's, and only the tensor knows whether they are whole.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from .host_reads import Reads
from .loaded_library import Library

MOST_KNOWN = 4096
"""Most elements of an answer of `isnan` whose values are told to the library."""
_FALSE = ("isnan", "isinf", "any", "logical_or")
_WHOLE = ("item", "tolist", "__int__", "__index__")


def wrap_functions(library: Library, reads: Reads) -> None:
    """Wrap functions of torch, which has been imported."""
    import torch
    from torch.jit import _builtins

    for name in _FALSE:
        for owner in (torch, torch.Tensor):
            answered = _answers_false(getattr(owner, name), library, checked=name in ("any", "logical_or"))
            setattr(owner, name, answered)
            if owner is torch:  # TorchScript knows torch's functions by their identity
                _builtins._register_builtin(answered, f"aten::{name}")
    for name in _WHOLE:
        setattr(torch.Tensor, name, _tells_whole(getattr(torch.Tensor, name), reads))


def _answers_false(function: Callable[..., Any], library: Library, *, checked: bool) -> Callable[..., Any]:
    """The function, with values that are false; if `checked`, only if its arguments are such answers."""
    import torch

    @functools.wraps(function)
    def answered(*given: Any, **named: Any) -> Any:
        found = function(*given, **named)
        if torch.compiler.is_compiling() or not getattr(found, "is_cuda", False) or type(found) is not torch.Tensor:
            return found
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        if not checked or all(getattr(one, "_absent_false", False) for one in tensors):
            _say_false(found, library)
        return found

    return answered


def _say_false(found: Any, library: Library) -> None:
    import torch

    found._absent_false = True
    # Wrappers of transforms such as vmap have no memory of their own.
    with contextlib.suppress(RuntimeError):
        if found.numel() <= MOST_KNOWN and not torch.cuda.is_current_stream_capturing():
            library.set_known(found.data_ptr(), 0, found.numel())


def _tells_whole(function: Callable[..., Any], reads: Reads) -> Callable[..., Any]:
    """The method of a tensor, which says while it runs that the tensor's numbers are whole."""

    @functools.wraps(function)
    def answered(tensor: Any, *given: Any) -> Any:
        dtype = tensor.dtype
        if dtype.is_floating_point or dtype.is_complex or dtype.itemsize == 1:
            return function(tensor, *given)
        reads.whole.now = True
        try:
            return function(tensor, *given)
        finally:
            reads.whole.now = False

    return answered
