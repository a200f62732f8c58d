"""Low-rank adapters on a tape (arXiv:2106.09685): y = W·x + B·(s·A·x) beside frozen linear layers.

`A` is rank × in and `B` is out × rank, as parameters `lora_A` and `lora_B` of the layer whose weight they adapt. The
factor s multiplies the narrow product.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.config import ModelConfig
from assay.cost import layers
from assay.cost.gpt_tape import parameters
from assay.cost.layers import Writer
from assay.cost.operation import Operation, Tensor, alter
from assay.cost.rewrites.four_bits import packed_form, unpacked_product, with_pairs

if TYPE_CHECKING:
    from assay.cost.step_cost import Cost

A, B = "lora_A", "lora_B"
"""Names of a layer's adapter, under which practitioners know them."""
PARTS = {"attention": (".attention.",), "mlp": (".mlp.",), "all-linear": (".attention.", ".mlp.")}
"""Modules of a block whose linear layers are adapted, by the name of the choice."""


def adapted_layers(config: ModelConfig, targets: str) -> tuple[str, ...]:
    """Return the linear layers of a dense model that a choice adapts, in the model's order."""
    found = (name for name in _matrices(config) if any(part in name for part in PARTS[targets]))
    return tuple(name.removesuffix(".weight") for name in found)


def adapters(config: ModelConfig, adapted: Iterable[str], rank: int) -> dict[str, Tensor]:
    """Both matrices of the adapter of each layer, by name."""
    found: dict[str, Tensor] = {}
    for name, weight in base_weights(config, adapted).items():
        found |= _adapter(name.removesuffix(".weight"), weight, rank)
    return found


def base_weights(config: ModelConfig, adapted: Iterable[str]) -> dict[str, Tensor]:
    """Matrices of the layers that have an adapter, by name, in their own shapes."""
    every = _matrices(config)
    return {name: every[name] for name in (f"{layer}.weight" for layer in adapted)}


def _matrices(config: ModelConfig) -> dict[str, Tensor]:
    """Matrices of the blocks, whose sides do not depend on the vocabulary, which may be unknown yet."""
    known = config if config.vocab_size is not None else config.model_copy(update={"vocab_size": 1})
    every = parameters(known).items()
    return {name: one for name, one in every if name.startswith("blocks.") and len(one.shape) == 2}


def is_adapter(name: str) -> bool:
    """True for the name of an adapter's matrix."""
    return name.endswith((f".{A}", f".{B}"))


def _adapter(layer: str, weight: Tensor, rank: int) -> dict[str, Tensor]:
    wide, narrow = weight.shape
    shapes = {f"{layer}.{A}": (rank, narrow), f"{layer}.{B}": (wide, rank)}
    return {name: alter(weight, name=name, shape=shape) for name, shape in shapes.items()}


def adapt_ledger(cost: "Cost", adapted: Iterable[str], rank: int, *, packs: bool = False) -> "Cost":
    """The ledger with adapters beside some layers, and with all other weights frozen.

    If it `packs`, the matrices of these layers are kept in 4 bits a number.
    """
    layers_of = {f"{layer}.weight": layer for layer in adapted}
    learned = _with_adapters(cost.parameters, layers_of, rank)
    values = cost.values | learned

    def rewritten() -> Iterator[Operation]:
        for one in cost.tape:
            layer = layers_of.get(one.inputs[1]) if len(one.inputs) > 1 and one.kind == "contraction" else None
            if layer is None:
                yield one
                continue
            x = values[one.inputs[0]]
            rows = alter(x, name=f"{x.name} as rows", view_of=x.name)
            if rows.name not in values:
                values[rows.name] = rows
                yield _flatten(one.site, rows)
            yield from _beside(one.reading({x.name: rows.name}), layer, values, cost.kernels.number_bytes, packs=packs)

    tape, pieces = tuple(rewritten()), _with_adapters(cost.pieces, layers_of, rank)
    whole = {name: cost.pieces[name] for name in layers_of} if packs else {}
    backward = replace(cost.backward, frozen=cost.backward.frozen.union(cost.parameters), packed=whole)
    changed = replace(cost, tape=tape, parameters=_packed(learned, whole), backward=backward)
    return (with_pairs(changed) if packs else changed).holding(_packed(pieces, whole))


def _packed(named: dict[str, Tensor], whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: packed_form(one) if name in whole else one for name, one in named.items()}


def _with_adapters(named: dict[str, Tensor], layers_of: dict[str, str], rank: int) -> dict[str, Tensor]:
    """Each adapter follows the weight and the bias of its layer, as in the module."""
    found: dict[str, Tensor] = {}
    for name, tensor in named.items():
        found[name] = tensor
        if layer := layers_of.get(name):
            if bias := named.get(f"{layer}.bias"):
                found[bias.name] = bias
            found |= _adapter(layer, tensor, rank)
    return found


def _flatten(site: str, rows: Tensor) -> Operation:
    """The view of an input as rows, at which gradients of all its layers are added up before any other."""
    return Operation(
        name="aten.view",
        site=site,
        kind="movement",
        inputs=(rows.view_of or "",),
        outputs=(rows,),
        gradients=(layers.ALIAS,),
        backward="ViewBackward",
    )


def _beside(
    one: Operation, layer: str, values: dict[str, Tensor], number_bytes: int, *, packs: bool
) -> list[Operation]:
    """The layer's product, the adapter's two, and their sum, which has the name of the layer's result."""
    tape, x, (out,) = Writer(one.site, dict(values)), values[one.inputs[0]], one.outputs
    plain = tape.made("plain", out.shape, out.dtype)
    own = alter(one, outputs=(plain,))
    first = unpacked_product(own, values[one.inputs[1]], Writer(one.site, tape.values)) if packs else [own]
    narrow = layers.linear(tape, x, values[f"{layer}.{A}"], None)
    # Its gradient of the input is there first, and that of the layer is added into it.
    tape.operations[-1] = alter(tape.operations[-1], gradients=(layers.FRESH, layers.VIEWED))
    wide = layers.linear(tape, layers.scale(tape, narrow, number_bytes), values[f"{layer}.{B}"], None)
    layers.add(tape, plain, wide)
    # The module holds its input until it returns.
    total = alter(tape.operations[-1], outputs=(out,), holds=(*one.holds, x.name))
    return [*first, *tape.operations[:-1], total]
