"""The baseline's parameters, and its forward pass as a tape: the GPT of `assay.model` without torch.

The code reads like the model, because it must stay like it. Names and shapes of parameters follow from the
configuration alone. The tests compare the bytes saved for backward with those that the module really saves, to the
byte, over configurations drawn at random.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from assay.config import ModelConfig
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.cost import attention_tape, layers, mixture
from assay.cost.kernels import Kernels
from assay.cost.layers import ALIAS, FRESH, INPLACE, NONE, Repeatable, Tape, Writer, rename
from assay.cost.operation import BLANK, Tensor, alter


def parameters(config: ModelConfig) -> dict[str, Tensor]:
    """Distinct parameters in the order of the module's `named_parameters()`; a tied projection is left out.

    All are float32.
    """
    shapes = dict(_shapes(config))
    learned = alter(BLANK, dtype="float32", batched=False)
    return {name: alter(learned, name=name, shape=shape) for name, shape in shapes.items()}


@lru_cache(maxsize=64)
def parameter_count(config: ModelConfig) -> int:
    """Number of parameters of a GPT."""
    return sum(map(prod, dict(_shapes(config)).values()))


def active_parameter_count(config: ModelConfig) -> int:
    """Number of parameters that compute one token: of a mixture's experts only those that the token is sent to."""
    if config.n_expert is None:
        return parameter_count(config)
    shapes, idle = dict(_shapes(config)), config.n_expert - config.n_expert_active
    experts = [shape for name, shape in shapes.items() if ".experts." in name]
    return sum(map(prod, shapes.values())) - sum(idle * prod(shape[1:]) for shape in experts)


def _shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield EMBEDDING_WEIGHT, (config.vocabulary, config.n_embd)
    if config.position == "learned":
        yield "embedding.position.weight", (config.context_length, config.n_embd)
    block = tuple(_block(config, ""))
    for index in range(config.n_layer):
        yield from [(f"blocks.{index}{name}", shape) for name, shape in block]
    if config.norm_position == "pre":
        yield from _norm(config, "head.norm", config.n_embd)
    if not config.tie_embeddings:
        yield HEAD_WEIGHT, (config.vocabulary, config.n_embd)


def _block(config: ModelConfig, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, group = config.n_embd, config.n_head // config.kv_heads
    yield from _norm(config, f"{name}.attention_norm", width)
    rows = config.kv_heads * (group + 2) * config.head_dim
    yield from _linear(config, f"{name}.attention.qkv", rows, width, bias=config.has_qkv_bias)
    if config.qk_norm:
        yield f"{name}.attention.q_norm.weight", (config.head_dim,)
        yield f"{name}.attention.k_norm.weight", (config.head_dim,)
    yield from _linear(config, f"{name}.attention.projection", width, config.heads_width)
    yield from _norm(config, f"{name}.mlp_norm", width)
    yield from (_mlp if config.n_expert is None else _mixture)(config, f"{name}.mlp")


def _mlp(config: ModelConfig, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    if config.activation == "swiglu":
        yield from _linear(config, f"{name}.gate", config.hidden, config.n_embd)
    yield from _linear(config, f"{name}.up", config.hidden, config.n_embd)
    yield from _linear(config, f"{name}.down", config.n_embd, config.hidden)


def _mixture(config: ModelConfig, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    experts = config.n_expert or 1
    yield f"{name}.router.weight", (experts, config.n_embd)
    if config.activation == "swiglu":
        yield f"{name}.experts.gate", (experts, config.hidden, config.n_embd)
    yield f"{name}.experts.up", (experts, config.hidden, config.n_embd)
    yield f"{name}.experts.down", (experts, config.n_embd, config.hidden)


def _norm(config: ModelConfig, name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    if config.norm == "layer" and config.bias:
        yield f"{name}.bias", (width,)


def _linear(
    config: ModelConfig, name: str, wide: int, narrow: int, *, bias: bool | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (wide, narrow)
    if config.bias if bias is None else bias:
        yield f"{name}.bias", (wide,)


class Forward:
    """Writes one forward pass over `rows` sequences of `config.context_length` tokens."""

    def __init__(self, config: ModelConfig, rows: int, kernels: Kernels) -> None:
        self.config, self.rows, self.kernels = config, rows, kernels
        self.parameters = parameters(config)
        length, depth = config.context_length, config.head_dim
        # The whole batch is on the device once; micro-batches are views of it, so it is never cut.
        self.batch = {name: Tensor(name, (rows, length), "int64", batched=False) for name in ("ids", "targets")}
        self.tables = {"mask": Tensor("mask", (length, length), "bool", batched=False)}
        if config.position == "rotary":
            for name in ("cosine", "sine"):
                self.tables[name] = Tensor(name, (length, depth), "float32", batched=False)
        self.writer = Writer("", {**self.parameters, **self.batch, **self.tables})

    def tape(self) -> Tape:
        """The operations from token ids `[B, T]` to the summed loss."""
        x = self._embedding(self.writer.at("embedding"))
        x = self._blocks(x)
        self._head(self.writer.at("head"), x)
        return tuple(self.writer.operations)

    def _blocks(self, x: Tensor) -> Tensor:
        """Write the first block, and repeat it under the names of the others, because that takes half the time."""
        operations, first = self.writer.operations, "blocks.0"
        before = len(operations)
        last = out = self._block(self.writer.at(first), x)
        block = Repeatable(operations[before:], first)
        for index in range(1, self.config.n_layer):
            names = block.names(f"blocks.{index}", {x.name: last.name})
            operations += block.under(names)
            last = rename(out, names)
        return last

    def _parameter(self, site: Writer, name: str) -> Tensor:
        return self.parameters[f"{site.site}.{name}"]

    def _linear(self, site: Writer, x: Tensor, holds: Sequence[Tensor] = ()) -> Tensor:
        weight, bias = self._parameter(site, "weight"), self.parameters.get(f"{site.site}.bias")
        return layers.linear(site, x, weight, bias, holds=holds)

    def _norm(self, site: Writer, x: Tensor) -> Tensor:
        weight = self._parameter(site, "weight")
        if self.config.norm == "rms":
            return layers.rms_norm(site, x, weight, fused=self.kernels.fused_rms_norm)
        return layers.norm(site, x, weight, self.parameters.get(f"{site.site}.bias"))

    def _dropout(self, site: Writer, x: Tensor, holds: Sequence[Tensor] = ()) -> Tensor:
        return layers.dropout(site.at("dropout"), x, self.config.dropout, self.kernels.dropout_noise, holds)

    def _embedding(self, site: Writer) -> Tensor:
        config, ids = self.config, self.batch["ids"]
        table = self._parameter(site, "token.weight")
        x = site.made("tokens", (self.rows, config.context_length, config.n_embd), "float32")
        site.write(
            "aten.embedding",
            "movement",
            (table, ids),
            (x,),
            (INPLACE, NONE),
            saves=(ids,),
            backward="EmbeddingBackward",
        )
        if config.position == "learned":
            positions = self._parameter(site, "position.weight")
            placed = site.made("placed", x.shape, "float32")
            site.write("aten.add", "elementwise", (x, positions), (placed,), (ALIAS, INPLACE), backward="AddBackward")
            x = placed
        return self._dropout(site, x)

    def _block(self, site: Writer, x: Tensor) -> Tensor:
        given = x
        for branch, run in (("attention", self._attention), ("mlp", self._mlp)):
            norm, before = site.at(f"{branch}_norm"), x
            if self.config.norm_position == "post":
                x = self._norm(norm, layers.add(site, x, run(site.at(branch), x)))
            else:
                x = layers.add(site, x, run(site.at(branch), self._norm(norm, x)))
        # The block's caller holds its input until the block returns, and the block that of its last branch.
        site.operations[-1] = alter(site.operations[-1], holds=(given.name, before.name))
        return x

    def _attention(self, site: Writer, x: Tensor) -> Tensor:
        q, k, v = given = self._heads(site, x)
        if k.shape != q.shape:
            k, v = (self._repeat(site, part, q.shape) for part in (k, v))
        mask = self.tables["mask"]
        merged = attention_tape.hand_coded(site.at("core"), q, k, v, mask, self.config.dropout, self.kernels)
        held = (x, *given, merged)
        return self._dropout(site, self._linear(site.at("projection"), merged, holds=held), held)

    def _heads(self, site: Writer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[B, n_head, T, head_dim]`, keys and values `[B, kv_heads, T, head_dim]`."""
        config = self.config
        group = config.n_head // config.kv_heads
        fused = self._linear(site.at("qkv"), x)
        length, depth = config.context_length, config.head_dim
        counts = {"q": config.n_head, "k": config.kv_heads, "v": config.kv_heads}
        parts = [
            site.made(name, (self.rows, heads, length, depth), fused.dtype, of=fused.name)
            for name, heads in counts.items()
        ]
        site.write("aten.split", "movement", (fused,), parts, (FRESH,), backward="SplitBackward")
        q, k, v = parts
        if group > 1 and config.kv_heads > 1:
            q = layers.copy(site, q, "grouped", q.shape)
        if config.qk_norm:
            q, k = (self._norm_of_heads(site.at(f"{name}_norm"), part) for name, part in (("q", q), ("k", k)))
        if config.position == "rotary":
            q, k = self._rotate(site, q), self._rotate(site, k)
        return q, k, v

    def _norm_of_heads(self, site: Writer, x: Tensor) -> Tensor:
        return layers.rms_norm(site, x, self._parameter(site, "weight"), fused=self.kernels.fused_rms_norm)

    def _repeat(self, site: Writer, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """One copy of a key or value head for each query head of its group; the gradient is summed over the group."""
        out = site.made("repeated", shape, x.dtype)
        site.write("aten.repeat_interleave", "movement", (x,), (out,), (FRESH,), backward="RepeatBackward")
        return out

    def _rotate(self, site: Writer, x: Tensor) -> Tensor:
        half = (*x.shape[:-1], x.shape[-1] // 2)
        left, right = (site.made(side, half, x.dtype, of=x.view_of or x.name) for side in ("left", "right"))
        site.write("aten.split", "movement", (x,), (left, right), (FRESH,), backward="SplitBackward")
        turned = site.made("turned", half, x.dtype)
        site.write("aten.neg", "elementwise", (right,), (turned,), (FRESH,), backward="NegBackward")
        swapped = site.made("swapped", x.shape, x.dtype)
        site.write("aten.cat", "movement", (turned, left), (swapped,), (ALIAS, ALIAS), backward="CatBackward")
        straight = layers.table_product(site, x, self.tables["cosine"])
        return layers.add(site, straight, layers.table_product(site, swapped, self.tables["sine"]))

    def _mlp(self, site: Writer, x: Tensor) -> Tensor:
        if self.config.n_expert is not None:
            return self._dropout(site, mixture.mixture(site, x, self.config, self.parameters, self.kernels))
        if self.config.activation == "swiglu":
            gate = layers.elementwise(site, "aten.silu", self._linear(site.at("gate"), x), backward="SiluBackward")
            inner = layers.product(site, gate, self._linear(site.at("up"), x))
        else:
            up = self._linear(site.at("up"), x)
            inner = layers.activation(site.at("activation"), up, self.config)
        return self._dropout(site, self._linear(site.at("down"), inner, holds=(x,)), holds=(x,))

    def _head(self, site: Writer, x: Tensor) -> None:
        config, targets, given = self.config, self.batch["targets"], x
        if config.norm_position == "pre":
            x = self._norm(site.at("norm"), x)
        owner = EMBEDDING_WEIGHT if config.tie_embeddings else HEAD_WEIGHT
        projection = site.at("projection")
        logits = layers.linear(projection, x, self.parameters[owner], None, holds=(x,))
        if config.logit_softcap is not None:
            logits = layers.soft_cap(projection, logits, self.kernels.number_bytes, holds=(x,))
        rows = self.rows * config.context_length
        logits = layers.view(site, logits, "rows", (rows, config.vocabulary))
        cross_entropy(site, logits, targets, holds=(given,))


def cross_entropy(site: Writer, logits: Tensor, targets: Tensor, holds: Sequence[Tensor] = ()) -> Tensor:
    """Log-softmax and negative log-likelihood over all rows; saves the log-probabilities and the targets."""
    logs = site.made("log_probabilities", logits.shape, "float32")
    site.write(
        "aten._log_softmax",
        "normalization",
        (logits,),
        (logs,),
        (FRESH,),
        saves=(logs,),
        backward="LogSoftmaxBackward",
    )
    loss = site.made("loss", (), "float32", batched=False)
    weight = site.made("total_weight", (), "float32", batched=False)
    site.write(
        "aten.nll_loss_forward",
        "normalization",
        (logs, targets),
        (loss,),
        (FRESH, NONE),
        saves=(logs, targets, weight),
        extras=(weight,),
        holds=(*holds, logits),
        backward="NllLossBackward",
    )
    return loss
