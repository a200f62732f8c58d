"""The attention cores on a tape, from queries, keys and values to the merged heads.

Shapes: B sequences, H query heads, T positions, d channels a head. Inputs are `[B, H, T, d]` views or tensors, the
result is `[B, T, H·d]`.
"""

from collections.abc import Sequence

from assay.cost import layers
from assay.cost.kernels import Kernels
from assay.cost.layers import ALIAS, FRESH, NONE
from assay.cost.operation import Flops, Scratch
from assay.cost.tape import Writer
from assay.cost.tensors import Tensor, altered

FLASH = "aten._scaled_dot_product_flash_attention"
"""Name of fused attention; the kernel of a CPU is called so, too."""


def hand_coded(tape: Writer, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, p: float, kernels: Kernels) -> Tensor:
    """Attention with explicit scores; saves the copies of q, k and v for `bmm`, the mask, and the probabilities."""
    rows, heads, length, depth = q.shape
    merged = rows * heads
    q, k, v = (contiguous(tape, x, label, (merged, length, depth)) for label, x in {"q": q, "k": k, "v": v}.items())
    scores = bmm(tape, "scores", q, layers.view(tape, k, "k_columns", (merged, depth, length)))
    scores = layers.scaled(tape, scores, kernels.number_bytes)
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
    weights = tape.made("probabilities", masked.shape, masked.dtype)
    tape.write(
        "aten._softmax",
        "normalization",
        (masked,),
        (weights,),
        (FRESH,),
        saves=(weights,),
        backward="SoftmaxBackward",
    )
    weights = layers.dropout(tape, weights, p, kernels.dropout_noise)
    mixed = bmm(tape, "mixed", weights, v, holds=(q, k, masked))
    merge = layers.copy if heads > 1 and length > 1 else layers.view
    return merge(tape, mixed, "merged", (rows, length, heads * depth))


def flash(tape: Writer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Fused attention; saves q, k, v, its output, and one number for each row and head. It returns merged heads."""
    rows, heads, length, depth = q.shape
    out = tape.made("mixed", (rows * heads, length, depth), q.dtype)
    row_sums = tape.made("logsumexp", (rows * heads, length), "float32")
    # Scores and mixture take 2·T²·d FLOPs a head each; backward recomputes the scores: five products for two.
    flops = 4 * rows * heads * length * length * depth
    tape.write(
        FLASH,
        "contraction",
        (q, k, v),
        (out,),
        (FRESH, FRESH, FRESH),
        saves=(q, k, v, out, row_sums),
        extras=(row_sums,),
        flops=Flops(flops, flops * 5 // 2),
        backward="ScaledDotProductFlashAttentionBackward",
    )
    return layers.view(tape, out, "merged", (rows, length, heads * depth))


def unfused(tape: Writer, q: Tensor, k: Tensor, v: Tensor, p: float, noise: str | None) -> Tensor:
    """Torch's `math` backend, always in float32; saves scaled queries and keys, the probabilities, and the values.

    Its mask is made anew in each layer and added in place. Mask, wide copies and scaled queries and keys are held until
    it returns. The softmax searches for rows without any score, which takes a boolean mask of all scores.
    """
    rows, heads, length, depth = q.shape
    # Heads are merged with rows without a copy if there is one head or position, or if their layout allows it.
    apart = [not (heads == 1 or length == 1 or lies_merged(x)) for x in (q, k, v)]
    given = (q, k, v)
    q, k, v = wide = tuple(
        layers.view(tape, x, f"wide_{label}", x.shape) for label, x in zip("qkv", given, strict=True)
    )
    q, k = scaled = layers.scaled(tape, q), layers.scaled(tape, k)
    mask = tape.made("added_mask", (length, length), "float32", batched=False)
    tape.write("aten.where", "elementwise", (), (mask,), ())
    q, k, v = (_heads_merged(tape, *one) for one in zip((q, k, v), "qkv", apart, strict=True))
    scores = bmm(tape, "scores", q, layers.view(tape, k, "k_columns", (rows * heads, depth, length)))
    masked = tape.made("masked", scores.shape, scores.dtype, of=scores.name)
    tape.write("aten.add", "elementwise", (scores, mask), (masked,), (ALIAS, NONE), backward="AddBackward")
    weights = tape.made("probabilities", masked.shape, masked.dtype)
    empty = (altered(weights, dtype="bool"), altered(weights, dtype="bool", shape=(*weights.shape[:-1], 1)))
    tape.write(
        "aten._safe_softmax",
        "normalization",
        (masked,),
        (weights,),
        (FRESH,),
        saves=(weights,),
        backward="SafeSoftmaxBackward",
        scratch=Scratch(tuple(altered(one, name=f"{one.name} empty") for one in empty)),
    )
    mixed = bmm(tape, "mixed", layers.dropout(tape, weights, p, noise), v, holds=(*given, *wide, *scaled, mask))
    # A view is cast by its readers, except the views of the arguments.
    tape.operations[:] = [
        one if one.name == "aten.view" and one.outputs[0] not in wide else altered(one, autocast="float32")
        for one in tape.operations
    ]
    merge = layers.copy if heads > 1 and length > 1 else layers.view
    return merge(tape, mixed, "merged", (rows, length, heads * depth))


def _heads_merged(tape: Writer, x: Tensor, label: str, apart: bool) -> Tensor:
    """Reshape `[B, H, T, d] → [B·H, T, d]`: a view for a single sequence or if heads are not `apart`, else a copy."""
    rows, heads, length, depth = x.shape
    if not apart or rows == 1:
        return layers.view(tape, x, label, (rows * heads, length, depth))
    merged = layers.copy(tape, x, label, (rows * heads, length, depth))
    tape.operations[-1] = altered(tape.operations[-1], of_heads=heads)
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
