"""The attention cores on a tape, from queries, keys and values to the merged heads.

Shapes: B sequences, H query heads, T positions, d channels a head. Inputs are `[B, H, T, d]` views or tensors, the
result is `[B, T, H·d]`.
"""

from collections.abc import Sequence

from assay.cost import layers
from assay.cost.kernels import Gpu, Kernels
from assay.cost.layers import ALIAS, FRESH, NONE, Writer
from assay.cost.operation import Flops, Operation, Tensor, alter

FLASH = "aten._scaled_dot_product_flash_attention"
"""Name of fused attention, whichever kernel computes it; the kernel of a CPU is called so, too."""
AUTO, GPU_FLASH, EFFICIENT, CUDNN, CPU_KERNEL = "auto", "flash", "efficient", "cudnn", "cpu"
"""Kernels of fused attention; `auto` is torch's choice."""
MATH = "math"
"""Attention of torch that is not fused."""
_SEEDS = {GPU_FLASH: 3, CUDNN: 2}
"""Numbers of 8 bytes that a kernel of a GPU keeps for its noise, with or without dropout."""
_BACKWARDS = {
    **dict.fromkeys((CPU_KERNEL, GPU_FLASH), "ScaledDotProductFlashAttentionBackward"),
    EFFICIENT: "ScaledDotProductEfficientAttentionBackward",
    CUDNN: "ScaledDotProductCudnnAttentionBackward",
}
_ROWS = 32
_CUDNN_FIRST = (9, 10)
"""Major compute capabilities on which torch prefers cuDNN's kernel."""


def hand_coded(tape: Writer, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, p: float, kernels: Kernels) -> Tensor:
    """Attention with explicit scores; saves the copies of q, k and v for `bmm`, the mask, and the probabilities."""
    rows, heads, length, depth = q.shape
    merged = rows * heads
    q, k, v = (contiguous(tape, x, label, (merged, length, depth)) for label, x in {"q": q, "k": k, "v": v}.items())
    scores = bmm(tape, "scores", q, layers.view(tape, k, "k_columns", (merged, depth, length)))
    scores = layers.scale(tape, scores, kernels.number_bytes)
    masked = tape.made("masked", scores.shape, scores.dtype)
    tape.write(
        "aten.masked_fill",
        "elementwise",
        (scores, mask),
        (masked,),
        (FRESH, NONE),
        saves=(mask,),
        backward="MaskedFillBackward",
    )
    weights = layers.softmax(tape, masked, product=kernels.softmax_product)
    weights = layers.dropout(tape, weights, p, kernels.dropout_noise)
    mixed = bmm(tape, "mixed", weights, v, holds=(q, k, masked))
    merge = layers.copy if heads > 1 and length > 1 else layers.view
    return merge(tape, mixed, "merged", (rows, length, heads * depth))


def flash(
    tape: Writer, q: Tensor, k: Tensor, v: Tensor, kernels: Kernels, backend: str = AUTO, *, noisy: bool = False
) -> Tensor:
    """Fused attention; saves q, k, v, its output, and what its kernel keeps. It returns merged heads.

    It is `noisy` if it drops probabilities.
    """
    rows, heads, length, depth = q.shape
    out = tape.made("mixed", (rows * heads, length, depth), q.dtype)
    # Scores and mixture take 2·T²·d FLOPs a head each; backward recomputes the scores: five products for two.
    flops = 4 * rows * heads * length * length * depth
    tape.write(
        FLASH,
        "contraction",
        (q, k, v),
        (out,),
        (FRESH, FRESH, FRESH),
        saves=(q, k, v, out),
        flops=Flops(flops, flops * 5 // 2),
        backward="ScaledDotProductFlashAttentionBackward",
    )
    asked = alter(tape.operations[-1], backend=backend, noisy=noisy)
    tape.operations[-1] = with_kernel(asked, q.dtype, kernels)
    return layers.view(tape, out, "merged", (rows, length, heads * depth))


def returned_in(dtype: str, operation: Operation) -> Operation:
    """The probabilities that unfused attention returns, in the dtype that was given: its caller frees them at once.

    Torch casts them before it multiplies them with the values (`_scaled_dot_product_attention_math`).
    """
    (out,) = operation.outputs
    return alter(operation, name="aten._to_copy", outputs=(alter(out, dtype=dtype, view_of=None),))


def with_kernel(operation: Operation, dtype: str, kernels: Kernels) -> Operation:
    """Fused attention with what its kernel keeps for inputs of a dtype: a number for each row, and on a GPU more.

    Rows are padded to 32 in the memory-efficient kernel, whose seed and offset are on the host. Those of the others are
    on the device. Source: torch 2.11, `_meta_registrations.py`, `meta__scaled_dot_product_*_attention`.
    """
    (out,) = operation.outputs
    kept = {one.name for one in operation.extras}
    kernel = kernel_of(operation.backend, dtype, out.shape, kernels.gpu)
    rows = -(-out.shape[1] // _ROWS) * _ROWS if kernel == EFFICIENT else out.shape[1]
    numbers = alter(out, name=f"{operation.site}:logsumexp", shape=(out.shape[0], rows), dtype="float32", view_of=None)
    extras = [numbers]
    if seeds := _SEEDS.get(kernel, 0):
        extras.append(Tensor(f"{operation.site}:seeds", (seeds,), "int64", batched=False))
    saves = (*(name for name in operation.saves if name not in kept), *(one.name for one in extras))
    return alter(operation, extras=tuple(extras), saves=saves, backward=_BACKWARDS[kernel])


def kernel_of(backend: str, dtype: str, shape: Sequence[int], gpu: Gpu | None) -> str:
    """Kernel of fused attention; torch's own choice if `backend` is `auto` (`sdp_utils.cpp` of torch 2.11).

    cuDNN's comes first on Hopper and Blackwell, for heads of 8, 16, … numbers.
    """
    if gpu is None:
        return CPU_KERNEL
    if backend != AUTO:
        return backend
    if dtype == "float32":
        return EFFICIENT
    _, length, depth = shape
    first = gpu.capability[0] in _CUDNN_FIRST
    return CUDNN if first and depth % 8 == 0 and length > 1 else GPU_FLASH


def math_attention(tape: Writer, q: Tensor, k: Tensor, v: Tensor, p: float, kernels: Kernels) -> Tensor:
    """Torch's `math` backend, always in float32; saves scaled queries and keys, the probabilities, and the values.

    Its mask is made anew in each layer and added in place. Mask, wide copies and scaled queries are held until it
    returns, and scaled keys until they are multiplied.
    """
    rows, heads, length, depth = q.shape
    # Heads are merged with rows without a copy if there is one head or position, or if their layout allows it.
    apart = [not (heads == 1 or length == 1 or lies_merged(x)) for x in (q, k, v)]
    # Autocast gives every argument its 16 bits, and then torch widens them.
    given = tuple(_narrowed(tape, x, f"given_{label}") for label, x in zip("qkv", (q, k, v), strict=True))
    q, k, v = wide = tuple(
        layers.view(tape, x, f"wide_{label}", x.shape) for label, x in zip("qkv", given, strict=True)
    )
    q, k = scaled, once = layers.scale(tape, q), layers.scale(tape, k)
    mask = tape.made("added_mask", (length, length), "float32", batched=False)
    tape.write("aten.where", "elementwise", (), (mask,), ())
    q, k = (_heads_merged(tape, *one) for one in zip((q, k), "qk", apart[:2], strict=True))
    columns = layers.view(tape, k, "k_columns", (rows * heads, depth, length))
    scores = bmm(tape, "scores", q, columns, holds=(once,))
    masked = tape.made("masked", scores.shape, scores.dtype, of=scores.name)
    tape.write("aten.add", "elementwise", (scores, mask), (masked,), (ALIAS, NONE), backward="AddBackward")
    weights = layers.dropout(tape, _safe_softmax(tape, masked, kernels), p, kernels.dropout_noise)
    returned = layers.view(tape, weights, "returned", weights.shape)
    tape.operations[-1] = alter(tape.operations[-1], backend=MATH, gradients=(NONE,))
    v = _heads_merged(tape, v, "v", apart[2])
    frame = (*given, *wide, scaled, mask, returned)
    mixed = bmm(tape, "mixed", weights, v, holds=frame)
    # A view is cast by its readers, except the views of the arguments.
    tape.operations[:] = [
        one if one.name == "aten.view" and one.outputs[0] not in wide else alter(one, autocast="float32")
        for one in tape.operations
    ]
    mixed = _narrowed(tape, mixed, "as_given", frame)
    merge = layers.copy if heads > 1 and length > 1 else layers.view
    return merge(tape, mixed, "merged", (rows, length, heads * depth))


def _safe_softmax(tape: Writer, masked: Tensor, kernels: Kernels) -> Tensor:
    """A softmax that searches for rows without any score, which takes a boolean mask of all scores."""
    weights = layers.softmax(tape, masked, "aten._safe_softmax", product=kernels.softmax_product)
    empty = (alter(weights, dtype="bool"), alter(weights, dtype="bool", shape=(*weights.shape[:-1], 1)))
    search = (alter(one, name=f"{one.name} empty") for one in empty)
    tape.operations[-1] = alter(tape.operations[-1], scratch=tape.operations[-1].scratch.and_also(search))
    return weights


def _narrowed(tape: Writer, x: Tensor, label: str, holds: Sequence[Tensor] = ()) -> Tensor:
    """The tensor itself, which 16-bit training casts here."""
    same = layers.view(tape, x, label, x.shape)
    tape.operations[-1] = alter(tape.operations[-1], autocast="low", holds=tuple(one.name for one in holds))
    return same


def _heads_merged(tape: Writer, x: Tensor, label: str, apart: bool) -> Tensor:
    """Reshape `[B, H, T, d] → [B·H, T, d]`: a view for a single sequence or if heads are not `apart`, else a copy."""
    rows, heads, length, depth = x.shape
    if not apart or rows == 1:
        return layers.view(tape, x, label, (rows * heads, length, depth))
    merged = layers.copy(tape, x, label, (rows * heads, length, depth))
    tape.operations[-1] = alter(tape.operations[-1], of_heads=heads)
    return merged


def contiguous(tape: Writer, x: Tensor, label: str, shape: tuple[int, ...]) -> Tensor:
    """`[B, H, T, d]` with contiguous positions in each head: a view if they are contiguous already, else a copy."""
    return (layers.view if lies_merged(x) else layers.copy)(tape, x, label, shape)


def lies_merged(x: Tensor) -> bool:
    """True if the positions of each head are contiguous in memory."""
    _, heads, length, _ = x.shape
    return x.view_of is None and (x.name.rstrip("'").endswith(":repeated") or heads == 1 or length == 1)


def bmm(tape: Writer, label: str, left: Tensor, right: Tensor, holds: Sequence[Tensor] = ()) -> Tensor:
    """Batched product `[N, a, b] × [N, b, c]`; saves both factors."""
    count, rows, inner = left.shape
    out = tape.made(label, (count, rows, right.shape[-1]), left.dtype)
    flops = 2 * count * rows * inner * right.shape[-1]
    tape.write(
        "aten.bmm",
        "contraction",
        (left, right),
        (out,),
        (FRESH, FRESH),
        saves=(left, right),
        flops=Flops(flops, 2 * flops),
        holds=holds,
        backward="BmmBackward",
    )
    return out
