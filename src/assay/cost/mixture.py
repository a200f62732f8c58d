"""The mixture of experts on a tape: the operations of `assay.model.moe`, one by one, without torch.

The expert of a token is not known before it runs, and hardly matters. Every token has k choices, so the experts of a
layer compute n·k rows whatever the router does. The saved bytes are exact on a CPU, which the tests check. With a
capacity the rows are E·places: all are executed, and at most n·k are needed. For micro-batches, places are rounded up
anew, but FLOPs are divided: they lack at most one place for each expert.

The routes' integers are counted where backward saves them, and left out where they are temporaries. The pieces of the
loop over experts that replaces a grouped product are left out, too. A peak inside a mixture can therefore be higher
than predicted by one copy of the experts' output.
"""

from dataclasses import replace
from math import prod

from assay.config import ModelConfig
from assay.cost import layers
from assay.cost.kernels import Kernels
from assay.cost.layers import ALIAS, CONVERTED, FRESH, GROUPED, INPLACE, NONE, TRANSPOSED, Writer
from assay.cost.operation import Flops, Operation, Places, Tensor


def between_steps(config: ModelConfig) -> tuple[Tensor, ...]:
    """Tensors that a model with experts keeps between steps: the loss's gradient, and each layer's routing statistics.

    Routers read the gradient in backward (`assay.model.balance`). The statistics are the balance, the dropped choices,
    and the choices of each expert (`training.probes`).
    """
    if config.n_expert is None:
        return ()
    sums = Tensor("routing statistics", (2 + config.n_expert,), "float64", batched=False)
    return (Tensor("gradient of the loss", (), batched=False), *(sums,) * config.n_layer)


def mixture(site: Writer, x: Tensor, config: ModelConfig, parameters: dict[str, Tensor], kernels: Kernels) -> Tensor:
    """Send `[B, T, n_embd]` through a router and the experts that it chooses, without dropout."""
    probabilities = _probabilities(site.at("router"), x, parameters, kernels)
    k = config.n_expert_active
    chosen = site.made("chosen", (*x.shape[:-1], k), "int64")
    site.write("aten.topk", "movement", (probabilities,), (chosen,), (NONE,))
    sources, destinations, ends = _routes(site, chosen, config)
    gates = _gates(site, probabilities, chosen, config)
    rows = _selected(site, x, sources, (*sources.shape, config.n_embd), autocast="low")
    out = _experts(site.at("experts"), rows, ends, config, parameters, chosen.elements)
    if config.expert_capacity is not None:
        site.operations[:] = _with_places(site, (sources, rows), Places(config, x.shape[0] * x.shape[1]))
    y = _selected(site, out, destinations, (x.shape[0], x.shape[1] * k, config.n_embd))
    weighted = site.made("weighted", y.shape, "float32")
    site.write(
        "aten.mul",
        "elementwise",
        (y, gates),
        (weighted,),
        (CONVERTED, CONVERTED),
        saves=(y, gates),
        backward="MulBackward",
    )
    summed = site.made("mixed", x.shape, "float32")
    site.write("aten.sum", "normalization", (weighted,), (summed,), (ALIAS,), backward="SumBackward")
    return summed


def _with_places(site: Writer, routed: tuple[Tensor, ...], places: Places) -> list[Operation]:
    """The tape in which `routed` and the tensors of the experts have rows that are rounded for each micro-batch."""
    inside = [one for one in site.operations if one.within(f"{site.site}.experts")]
    named = {tensor.name for tensor in (*routed, *(made for one in inside for made in one.outputs))}
    return [
        one.making(lambda made: replace(made, places=places) if made.name in named else made) for one in site.operations
    ]


def _probabilities(site: Writer, x: Tensor, parameters: dict[str, Tensor], kernels: Kernels) -> Tensor:
    logits = layers.linear(site, x, parameters[f"{site.site}.weight"], None, autocast="float32")
    return layers.softmax(site, logits, product=kernels.softmax_product)


def _routes(site: Writer, chosen: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sources, destinations, and the ends of each expert's rows, which only a grouped product saves."""
    rows, length, k = chosen.shape
    experts, places = config.n_expert or 1, config.expert_places(rows * length)
    sources = site.made("sources", (rows, length * k) if places is None else (experts * places,), "int64")
    destinations = site.made("destinations", (rows, length * k), "int64")
    grouped = places is None and config.experts_aligned
    ends = site.made("ends", (experts,), "int32", batched=False) if grouped else None
    site.write("aten.sort", "movement", (chosen,), (sources, destinations, *([ends] if ends else [])), (NONE,))
    counted = site.made("counts", (experts,), "int64", batched=False)
    site.write("aten.diff", "movement", (chosen,), (counted,), (NONE,), counts=True)
    return sources, destinations, ends


def _gates(site: Writer, probabilities: Tensor, chosen: Tensor, config: ModelConfig) -> Tensor:
    if config.router_loss > 0:
        shares = site.made("shares", (config.n_expert or 1,), "float32", batched=False)
        joined = site.made("balanced", probabilities.shape, "float32", of=probabilities.name)
        site.write(
            "balance",
            "movement",
            (probabilities,),
            (joined,),
            (FRESH,),
            saves=(shares,),
            extras=(shares,),
            backward="_BalanceBackward",
        )
        probabilities = joined
    gates = site.made("gates", chosen.shape, "float32")
    saved = (probabilities, chosen)
    site.write("aten.gather", "movement", saved, (gates,), (FRESH, NONE), saves=saved, backward="GatherBackward")
    if config.n_expert_active > 1:
        gates = _normalized(site, gates)
    if config.expert_capacity is not None:
        kept = site.made("kept", chosen.shape, "bool")
        gated = site.made("gated", gates.shape, "float32")
        site.write(
            "aten.mul", "movement", (gates,), (gated,), (FRESH,), saves=(kept,), extras=(kept,), backward="MulBackward"
        )
        gates = gated
    return gates


def _normalized(site: Writer, gates: Tensor) -> Tensor:
    total = site.made("total", (*gates.shape[:-1], 1), "float32")
    site.write("aten.sum", "normalization", (gates,), (total,), (ALIAS,), backward="SumBackward")
    out = site.made("normalized", gates.shape, "float32")
    both = (gates, total)
    site.write("aten.div", "elementwise", both, (out,), (FRESH, FRESH), saves=both, backward="DivBackward")
    return out


def _selected(site: Writer, x: Tensor, index: Tensor, shape: tuple[int, ...], autocast: str = "") -> Tensor:
    """Rows gathered by an index, which is saved; backward adds their gradients up at the source rows."""
    out = site.made("selected", shape, x.dtype)
    site.write(
        "aten.index_select",
        "movement",
        (x, index),
        (out,),
        (FRESH, NONE),
        saves=(index,),
        backward="IndexSelectBackward",
        autocast=autocast,
    )
    return out


def _experts(
    site: Writer, rows: Tensor, ends: Tensor | None, config: ModelConfig, parameters: dict[str, Tensor], needed: int
) -> Tensor:
    def product(x: Tensor, name: str) -> Tensor:
        return _product(site, x, parameters[f"{site.site}.{name}"], ends, config, needed)

    if config.activation == "swiglu":
        activation = site.at("activation")
        gate = layers.elementwise(activation, "aten.silu", product(rows, "gate"), backward="SiluBackward")
        inner = layers.product(site, gate, product(rows, "up"))
    else:
        inner = layers.activation(site.at("activation"), product(rows, "up"), config)
    return product(inner, "down")


def _product(site: Writer, x: Tensor, weight: Tensor, ends: Tensor | None, config: ModelConfig, needed: int) -> Tensor:
    """Product of each row and the matrix of its expert; at most `needed` of the rows hold a token."""
    _, wide, narrow = weight.shape
    out = site.made("out", (*x.shape[:-1], wide), x.dtype)
    flops = 2 * prod(x.shape[:-1]) * wide * narrow
    operator, node, how = "aten.mm", "MmBackward", INPLACE
    if config.expert_capacity is not None:
        # The gradient of a transposed stack is a transposed view, except of a stack of vectors.
        operator, node, how = "aten.bmm", "BmmBackward", INPLACE if 1 in (wide, narrow) else TRANSPOSED
    kept: tuple[Tensor, ...] = () if ends is None else (ends,)
    if kept:
        operator, node = GROUPED, "GroupedMmBackward"
    site.write(
        operator,
        "contraction",
        (x, weight, *kept),
        (out,),
        (FRESH, how, NONE)[: 2 + len(kept)],
        saves=(x, weight, *kept),
        flops=Flops(flops, 2 * flops, 3 * 2 * max(0, prod(x.shape[:-1]) - needed) * wide * narrow),
        backward=node,
        autocast="low",
    )
    return out
