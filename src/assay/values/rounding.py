"""Arithmetic in few bits, imitated operation by operation: operands and results are rounded, and the rest stays wide.

A reference that computes in this context has the rounding errors of an honest program at the same weights, forward and
backward. It shares no code with any technique: no autocast, no narrow weights and no narrow kernel. Rounded are the
operands and results of matrix products, and what softmaxes of attention return. With `everywhere` it is what any
operation returns, except the loss's own. A mixture's router stays wide, as in the program.

In float8 operands of backward have the format of gradients, which has two bits of mantissa.

Small numbers are kept: a program's loss scale, or the scale of a float8 tensor, puts them into the range of the dtype.
The gradients of a program that holds everything in float16 are divided by that scale in float16, and lose them again.

A fused attention in float32 has rounding errors of its own, which another context imitates.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from assay.model.backward import in_backward
from assay.reference.expected import Rounding

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "convolution", "convolution_backward")
_SOFTMAX = ("_softmax", "_softmax_backward_data")
_SUMS_OVER_TOKENS = {
    "native_layer_norm_backward": (3, 4),
    "_fused_rms_norm_backward": (3,),
    "embedding_dense_backward": (),
}
"""Kernels of backward of which some add up over all tokens in the narrow dtype, and their arguments with statistics."""
_LOSS = ("_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward")
_MOVES = ("clone", "detach", "_to_copy", "embedding", "masked_fill", "stack", "cat", "slice_backward", "_unsafe_view")
"""Operations that compute nothing."""
_ALIASES = ("_unsafe_view",)
"""Operations whose result has its operand's memory, although their schema does not say so."""
_SCORES = 3
"""Dimensions of attention's scores, at least; a router's have two."""
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float8": torch.float8_e4m3fn}

_ROOM = 2
"""Powers of two that are left for sums of a few elements."""
_ROOM_FOR_SUMS = 2.0**-12
"""Factor that leaves room for sums over tokens, and for the division by small deviations."""
_LARGEST_EXPONENT = 100
"""Largest power of two that a tensor is scaled by: float32 has numbers up to 2¹²⁷."""

_SPLITTING = 2.0**13 + 1
"""Factor that splits the 24 bits of a number in float32 behind the 11th."""

Round = Callable[[Tensor], Tensor]


def dtype_of(rounding: Rounding) -> torch.dtype:
    """Return the dtype that operands of linear layers are rounded to."""
    return _DTYPES[rounding.dtype]


def may_reduce_in_16_bits() -> bool:
    """Return whether torch lets cuBLAS add up parts of 16-bit products in 16 bits, as it does by default."""
    settings = torch.backends.cuda.matmul
    return bool(settings.allow_bf16_reduced_precision_reduction or settings.allow_fp16_reduced_precision_reduction)


def round_to(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the nearest numbers in `dtype`, as a tensor of the old dtype; its largest is scaled into the range."""
    if not tensor.is_floating_point() or tensor.numel() <= 1:
        return tensor
    scale = _scale(tensor, dtype)
    if scale == 1.0:
        return _widened(tensor.to(dtype), tensor.dtype)
    return _widened((tensor * scale).to(dtype), tensor.dtype).mul_(1 / scale)


def _to_11_bits(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what `round_to` does: the nearest numbers with the 11 significant bits of float16, in float32.

    Veltkamp's splitting of float32 (Dekker 1971, doi.org/10.1007/BF01397083) takes a third of its time on a CPU. It
    needs no scale, so the smallest elements are kept as well. It would lose infinite ones, such as those of a mask. So
    such a tensor is left to `round_to`, as are single numbers and other dtypes.
    """
    if tensor.numel() <= 1 or tensor.dtype is not torch.float32:
        return round_to(tensor, dtype)
    product = tensor * _SPLITTING
    rounded = product.sub_(product - tensor)
    return rounded if math.isfinite(float(rounded.sum())) else round_to(tensor, dtype)


def _widened(narrow: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a dense tensor in a wide dtype. On a CPU torch takes three times as long with E4M3 as a table does."""
    if narrow.dtype is not torch.float8_e4m3fn or narrow.is_cuda:
        return narrow.to(dtype)
    codes = narrow.as_strided((narrow.numel(),), (1,)).view(torch.uint8).to(torch.int32)
    return _numbers(narrow.dtype, dtype).index_select(0, codes).as_strided(narrow.size(), narrow.stride())


@cache
def _numbers(narrow: torch.dtype, dtype: torch.dtype) -> Tensor:
    """Return the number of each code of 8 bits."""
    return torch.arange(256, dtype=torch.uint8).view(narrow).to(dtype)


def _scale(tensor: Tensor, dtype: torch.dtype) -> float:
    """Return a power of two that brings the largest element near the largest number of `dtype`."""
    if dtype is torch.bfloat16:  # as wide a range as float32's
        return 1.0
    lowest, highest = torch.aminmax(tensor)
    largest = float(torch.maximum(highest, -lowest))
    if not largest or not math.isfinite(largest):
        return 1.0
    exponent = math.floor(math.log2(torch.finfo(dtype).max)) - _ROOM - math.frexp(largest)[1]
    return 2.0 ** min(exponent, _LARGEST_EXPONENT)


class Imitated(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context in which operations round as `rounding` says; products with a weight of `wide` do not."""

    def __init__(self, rounding: Rounding, wide: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._everywhere = rounding.everywhere
        self._narrow = dtype_of(rounding)
        # Only the operands of linear layers are in 8 bits.
        self._dtype = torch.bfloat16 if rounding.dtype == "float8" else self._narrow
        self._wide = {one.data_ptr() for one in wide}
        self._round = _to_11_bits if self._narrow is torch.float16 else round_to
        self._rounded: set[int] = set()
        """Addresses of memory that this context has filled with rounded numbers; used with `everywhere`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        if self._everywhere and name in _SUMS_OVER_TOKENS:
            return self._summed_over_tokens(func, _SUMS_OVER_TOKENS[name], *args, **kwargs)
        product = name in _PRODUCTS and not any(
            isinstance(one, Tensor) and one.data_ptr() in self._wide for one in args
        )
        if product:
            narrow = self._dtype if name == "bmm" else self._narrow
            if narrow is torch.float8_e4m3fn and in_backward():
                narrow = torch.float8_e5m2  # gradients; the other operand is rounded more than it is in the program
            args = _each(lambda one: one if _address(one) in self._rounded else self._round(one, narrow), args)
        found = func(*args, **kwargs)
        if product or self._rounds(func, name, found):
            return _each(self._result, found)
        if self._everywhere and not func.is_view and name not in _ALIASES:
            _each(self._written, found)
        return found

    def _result(self, one: Tensor) -> Tensor:
        """Round a result. No product need round it again, until its memory is written to once more."""
        rounded = self._round(one, self._dtype)
        if self._everywhere:
            self._rounded.add(_address(rounded))
        return rounded

    def _written(self, one: Tensor) -> Tensor:
        self._rounded.discard(_address(one))
        return one

    def _summed_over_tokens(self, func: Any, statistics: tuple[int, ...], *args: Any, **named: Any) -> Any:
        """Run a kernel in the narrow dtype, because it may also add up in it. A GPU's keeps statistics in float32."""
        gradient, wide = args[0], statistics if args[0].is_cuda else ()
        scale = _scale(gradient, self._dtype) * _ROOM_FOR_SUMS
        narrow = _each(lambda one: one.to(self._dtype), (gradient * scale, *args[1:]))
        found = func(*(args[place] if place in wide else one for place, one in enumerate(narrow)), **named)
        return _each(lambda one: one.to(gradient) / scale, found)

    def _rounds(self, func: Any, name: str, found: Any) -> bool:
        if name in _SOFTMAX:
            return bool(found.ndim >= _SCORES)
        if not self._everywhere:
            return False
        moves = func.is_view or name.endswith("_") or name in _MOVES
        return not moves and name not in _LOSS


class FusedAttention(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context in which attention's backward has the rounding errors of a fused kernel.

    Such a kernel keeps no probabilities P but one logsumexp a row, and P = exp(score − logsumexp). Where scores are
    large, so is the rounding of the logsumexp. The gradient of the scores is P∘(dP − δ), with δ = Σ P∘dP over a row.
    The kernel takes δ from the outputs, so its error does not cancel where P is nearly 1, as it does in a softmax.
    The forward has neither error.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recomputed: dict[int, tuple[Tensor, Tensor]] = {}
        self._noise = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, backward = func._schema.name.removeprefix("aten::"), in_backward()
        if backward:
            args = _each(self._probabilities, args)
        found = func(*args, **(kwargs or {}))
        if name not in _SOFTMAX or found.ndim < _SCORES:
            return found
        if name == "_softmax_backward_data":
            return found + self._unlike_sums(*args[:2])
        if not backward:
            scores, dim = args[0], args[1]
            recomputed = torch.exp(scores - scores.logsumexp(dim, keepdim=True))
            # The tensor itself is kept, so that no other one gets its address.
            self._recomputed[found.data_ptr()] = found, torch.empty_like(found).copy_(recomputed)
        return found

    def _probabilities(self, one: Tensor) -> Tensor:
        """Return a fused kernel's probabilities for a view of a softmax's whole result; any other tensor unchanged."""
        kept = self._recomputed.get(one.data_ptr())
        if kept is None or kept[0].numel() != one.numel():
            return one
        return kept[1].as_strided(one.size(), one.stride())

    def _unlike_sums(self, gradient: Tensor, probabilities: Tensor) -> Tensor:
        """Return the error of scores' gradients if δ is off by a roundoff of a typical element of dP."""
        size = gradient.square().mean(dim=-1, keepdim=True).sqrt()
        noise = torch.randn(size.shape, generator=self._noise).to(size)
        return probabilities * (torch.finfo(gradient.dtype).eps / 2 * size * noise)


def _each(change: Round, values: Any) -> Any:
    """Change every tensor of floating point among `values`, which are a tensor or several values."""
    if isinstance(values, Tensor):
        return change(values) if values.is_floating_point() else values
    if isinstance(values, tuple | list):
        return type(values)(_each(change, one) for one in values)
    return values


def _address(tensor: Tensor) -> int:
    """Return where a tensor's memory begins, which all of its views share."""
    return tensor.untyped_storage().data_ptr()


def round_in_place(gradients: Iterable[Tensor], rounding: Rounding) -> None:
    """Round, in place, gradients that a program keeps in a narrow dtype, after it divided them by its loss scale."""
    if rounding.everywhere:
        for one in gradients:
            one.copy_(one.to(dtype_of(rounding)))
