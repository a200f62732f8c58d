"""Name and shape of every parameter of a GPT, from its configuration alone.

They must agree with those of the module.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from assay.config import ModelConfig
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.cost.tensor import BLANK, Tensor, alter


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
