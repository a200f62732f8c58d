"""Names and shapes of the tensors of Hugging Face checkpoints, by ours, without torch.

A tensor of ours is one of theirs, or several, such as their queries, keys and values. GPT-2 stores linear weights
input-first (`Conv1D`, `[in, out]`). `assay.model.hf` converts the values.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from assay.config.hf.llama import alike
from assay.config.model import HEAD_WEIGHT, ModelConfig

OUTPUT = "lm_head.weight"
"""Name of the output projection, which has no prefix in any family."""
_QKV = "attention.qkv"
_LINEAR = ("attention.", "mlp.")

Shape = tuple[int, ...]


class Where(NamedTuple):
    """The parts of a parameter's name in assay."""

    block: str
    """Number of its block; empty outside of blocks."""
    inner: str
    """Module within the block, or within the model."""
    kind: str
    """`weight` or `bias`."""


def where(ours: str) -> Where:
    """Return the parts of a parameter's name in assay, such as ``blocks.3.mlp.up.weight``."""
    module, _, kind = ours.rpartition(".")
    if module.startswith("blocks."):
        _, index, inner = module.split(".", 2)
        return Where(index, inner, kind)
    return Where("", module, kind)


@dataclass(frozen=True)
class Naming:
    """Names of a family's tensors."""

    title: str
    prefix: str
    """Prefix of all tensors but the output projection; a checkpoint without it is read, too."""
    layer: str
    """Name of the list of blocks."""
    parts: Mapping[str, str]
    """Their modules by ours. Llama's queries, keys and values are three modules."""
    input_first: bool = False
    """True if linear weights are transposed."""
    unused: tuple[str, ...] = ()
    """Endings of tensors that old versions wrote and that are not weights."""
    pads_biases: bool = False
    """True if the family always has biases: those that our model lacks are zero."""
    cut: tuple[str, ...] = ()
    """Tensors of which a shorter context takes the first rows."""

    def names(self, ours: str) -> tuple[str, ...]:
        """Return their names of one of our tensors, without the prefix."""
        if ours == HEAD_WEIGHT:
            return (OUTPUT,)
        block, inner, kind = where(ours)
        layer = f"{self.layer}.{block}." if block else ""
        if inner == _QKV and inner not in self.parts:
            return tuple(f"{layer}self_attn.{one}_proj.{kind}" for one in "qkv")
        return (f"{layer}{self.parts[inner]}.{kind}",)

    def shapes(self, ours: str, shape: Shape, config: ModelConfig) -> dict[str, Shape]:
        """Return the shape of each of their tensors that one of ours becomes."""
        names = self.names(ours)
        if len(names) == 1:
            turned = self.input_first and where(ours).inner.startswith(_LINEAR)
            return {names[0]: shape[::-1] if turned else shape}
        heads = (config.n_head, config.kv_heads, config.kv_heads)
        return {name: (count * config.head_dim, *shape[1:]) for name, count in zip(names, heads, strict=True)}


GPT2 = Naming(
    title="GPT-2",
    prefix="transformer.",
    layer="h",
    parts={
        "embedding.token": "wte",
        "embedding.position": "wpe",
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.projection": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
        "head.norm": "ln_f",
    },
    input_first=True,
    unused=(".attn.bias", ".attn.masked_bias"),
    pads_biases=True,
    cut=("wpe.weight",),
)
LLAMA = Naming(
    title="Llama",
    prefix="model.",
    layer="layers",
    parts={
        "embedding.token": "embed_tokens",
        "attention_norm": "input_layernorm",
        "attention.q_norm": "self_attn.q_norm",
        "attention.k_norm": "self_attn.k_norm",
        "attention.projection": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
        "head.norm": "norm",
    },
    unused=("rotary_emb.inv_freq",),
)


def naming_of(config: ModelConfig) -> Naming:
    """Return the names of the family that has a model's parts: Llama's, or else GPT-2's."""
    return LLAMA if alike(config) else GPT2


def with_own_head(theirs: ModelConfig, ours: ModelConfig, names: Container[str]) -> ModelConfig:
    """Return a checkpoint's model, untied if ours is and the checkpoint has an output projection among its `names`."""
    untied = theirs.tie_embeddings and not ours.tie_embeddings and OUTPUT in names
    return theirs.model_copy(update={"tie_embeddings": False}) if untied else theirs
