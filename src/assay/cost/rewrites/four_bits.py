"""Frozen matrices in 4 bits a number (NF4 of QLoRA, arXiv:2305.14314), and their products on a tape.

A matrix is cut into blocks of 64 numbers along its rows. A block is kept as its largest absolute number in float32 and
64 codes of 4 bits, two a byte: 36 bytes. A code is the place of a level in `LEVELS`, and a number is that level times
the block's largest.

A product unpacks its whole matrix first, in the dtype in which it multiplies, and frees it afterwards. Backward unpacks
it again. The codes of some blocks at a time become 32-bit indices, and each index two float32 numbers.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from assay.cost.layers import Writer
from assay.cost.operation import Gradient, Operation, Scratch, Tensor, alter

if TYPE_CHECKING:
    from assay.cost.step_cost import Cost

LEVELS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Levels of a 4-bit code, as in appendix E of the paper: quantiles of a normal distribution within ±1, with 0."""
BLOCK = 64
"""Numbers of a block."""
LARGEST_BYTES = 4
"""Bytes of a block's largest number, which stand before its codes."""
PACKED_BYTES = LARGEST_BYTES + BLOCK // 2
"""Bytes of a packed block: 4.5 bits a number."""
BLOCKS_AT_ONCE = 2**14
"""Blocks that are unpacked at once: of 2²⁰ numbers, which take 6 MB beside the matrix."""
PAIRS = 256
"""Values of a byte, each of which stands for two levels."""
LOOKUP = "aten.index_select"
"""Torch's operator by which a byte's two levels are looked up."""
_NODE = "UnpackedProductBackward"
INDEXED = "int64"
"""Dtype of the table, in which a byte's two levels are the bits of one number."""


def packed_form(weight: Tensor) -> Tensor:
    """Return the matrix as its packed blocks, one a row of bytes."""
    return alter(weight, shape=(prod(weight.shape) // BLOCK, PACKED_BYTES), dtype="uint8")


def unpacked_by(operation: Operation, *, backward: bool) -> Tensor | None:
    """Return the matrix that an operation unpacks in its forward or in its backward; None if it unpacks none."""
    if operation.name != LOOKUP or operation.backward != _NODE:
        return None
    whole = operation.scratch.backward[:1] if backward else operation.outputs if operation.scratch.forward else ()
    return whole[0] if whole else None


def lookups(whole: Tensor) -> int:
    """Return the number of lookups that unpack a matrix."""
    return -(-whole.elements // (BLOCK * BLOCKS_AT_ONCE))


def unpackings(tape: Iterable[Operation]) -> tuple[int, int]:
    """Return how many lookups unpack the matrices of a tape in its forward, and in its backward."""
    forward, backward = (
        sum(lookups(whole) for one in tape if (whole := unpacked_by(one, backward=direction)))
        for direction in (False, True)
    )
    return forward, backward


def with_pairs(cost: "Cost") -> "Cost":
    """Return the ledger with the table of all bytes' levels, which stays on the device."""
    return replace(cost, buffers=(*cost.buffers, Tensor("levels of a byte", (PAIRS,), INDEXED, False)))


def unpacked_product(linear: Operation, weight: Tensor, tape: Writer) -> list[Operation]:
    """Return the operations of a linear layer whose frozen `weight`, of the matrix's own shape, is packed."""
    out = linear.outputs[0]
    whole = tape.made("unpacked", weight.shape, weight.dtype, batched=False)
    product = tape.made("product", out.shape, out.dtype)
    again = Scratch(backward=(whole, *_inside(whole)))
    tape.operations += [
        _lookup(tape.site, weight.name, whole, Gradient.NONE, Scratch(_inside(whole))),
        _multiplied(linear, whole, product),
        # Its backward is one function with two instants. This is the first, in which the matrix is unpacked.
        _lookup(tape.site, product.name, alter(out, view_of=product.name), Gradient.ALIAS, again),
    ]
    return tape.operations


def _multiplied(linear: Operation, whole: Tensor, product: Tensor) -> Operation:
    x, weight, *bias = linear.inputs
    return alter(
        linear,
        inputs=(x, whole.name, *bias),
        outputs=(product,),
        gradients=(Gradient.FRESH, Gradient.NONE, *linear.gradients[2:]),
        saves=(weight,),
        scratch=Scratch(backward=(whole,)),
        backward=_NODE,
        autocast="low",
    )


def _lookup(site: str, of: str, out: Tensor, how: Gradient, scratch: Scratch) -> Operation:
    return Operation(
        name=LOOKUP,
        site=site,
        kind="movement",
        inputs=(of,),
        outputs=(out,),
        gradients=(how,),
        backward=_NODE,
        scratch=scratch,
        autocast="low",
    )


def _inside(whole: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices and the numbers of the blocks that are unpacked at once."""
    numbers = min(prod(whole.shape), BLOCK * BLOCKS_AT_ONCE)
    shapes = {"int32": numbers // 2, "float32": numbers}
    indices, looked_up = (
        alter(whole, name=f"{whole.name} · {dtype}", shape=(count,), dtype=dtype, wide=True)
        for dtype, count in shapes.items()
    )
    return indices, looked_up
