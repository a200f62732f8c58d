"""Shape of a GPT decoder, and the numbers that follow from it."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from assay.config.base import PathText, Setting
from assay.config.extensions import names_a_function

EPSILON = 1e-5
"""Number added to the variance in every norm by default, as in GPT-2 and nanoGPT."""

EMBEDDING_WEIGHT, HEAD_WEIGHT = "embedding.token.weight", "head.projection.weight"
"""Names of the weights of the vocabulary's ends, which may be one tensor."""

NEWER = ("n_head_dim", "qkv_bias", "norm_eps", "rotary_factor", "rotary_context", "logit_softcap", "own", "own_folder")
"""Fields that runs of earlier versions lack: at their defaults they are no part of a run's identity."""

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


# More than 20 fields: its keys are those of a user's file and command line, where `model.n_layer` is all there is.
class ModelConfig(Setting):
    """A decoder-only transformer: GPT-2, Llama, Qwen, and what lies between them."""

    n_layer: Annotated[int, Field(ge=1, le=10_000)] = 6
    """Number of transformer blocks."""
    n_head: PositiveInt = 6
    """Number of query heads in each block."""
    n_embd: PositiveInt = 384
    """Width of the residual stream."""
    context_length: PositiveInt = 256
    """Tokens of a sequence."""
    vocab_size: PositiveInt | None = None
    """Rows of the embedding. None: the tokenizer's size."""
    n_kv_head: PositiveInt | None = None
    """Number of key and value heads (grouped-query attention, arXiv:2305.13245). None: as many as query heads."""
    n_head_dim: PositiveInt | None = None
    """Width of one attention head. None: n_embd / n_head."""
    n_hidden: PositiveInt | None = None
    """Width of the MLP. None: 4 × n_embd, or for SwiGLU 8/3 × n_embd, rounded up to a multiple of 8."""
    bias: bool = True
    """Use biases in linear layers and LayerNorms."""
    qkv_bias: bool | None = None
    """Use a bias in the projection to queries, keys and values, as Qwen2 does. None: as `bias`."""
    dropout: Probability = 0.0
    """Probability with which a value is dropped in training: of embeddings, attention and branches."""
    norm: Literal["layer", "rms"] = "layer"
    """`layer` is LayerNorm, `rms` is RMSNorm."""
    norm_eps: Annotated[float, Field(gt=0.0, lt=1.0)] = EPSILON
    """Number added to the variance in every norm."""
    norm_position: Literal["pre", "post"] = "pre"
    """`pre` normalizes each branch's input and the decoder's output; `post` normalizes the sum after each branch."""
    position: Literal["learned", "rotary"] = "learned"
    """`learned` adds an embedding of the position; `rotary` rotates queries and keys."""
    rotary_base: PositiveFloat = 10_000.0
    """Base of the rotations' periods."""
    rotary_factor: Annotated[float, Field(ge=1.0)] = 1.0
    """Factor by which Llama 3.1 slows rotations that are slow in its first context. 1: no change."""
    rotary_context: PositiveInt = 8192
    """Context before that change: rotations of a longer period slow down by the whole factor."""
    activation: Literal["gelu", "gelu_tanh", "swiglu", "squared_relu"] = "gelu"
    """Nonlinearity of the MLP. `gelu_tanh` is the approximation of GPT-2; `squared_relu` is arXiv:2109.08668."""
    n_expert: PositiveInt | None = None
    """Number of experts that replace each MLP, each `hidden` wide and without biases. None: the dense MLP."""
    n_expert_active: PositiveInt = 2
    """Number of experts that each token is sent to."""
    expert_capacity: PositiveFloat | None = None
    """Capacity of an expert in training, as a multiple of its even share (arXiv:2101.03961). None: no limit."""
    router_loss: NonNegativeFloat = 0.01
    """Coefficient of the load-balancing loss, which affects gradients and is part of no reported loss."""
    qk_norm: bool = False
    """RMS-normalize queries and keys over the head dimension (arXiv:2010.04245)."""
    logit_softcap: PositiveFloat | None = None
    """Bound c of the logits, which become c·tanh(logits/c) (arXiv:2408.00118). None: they have no bound."""
    tie_embeddings: bool = True
    """Use the token embedding's weight in the output projection as well (arXiv:1608.05859)."""
    init_std: PositiveFloat = 0.02
    """Standard deviation of initial weights."""
    init_from: PathText | None = None
    """Source of the initial weights: a folder with a Hugging Face checkpoint or an export, or a run.

    Model fields that are not set take the values of that model; fields that are set must match it.
    """

    own: str | None = None
    """A model of the user's own, as ``module:function`` or ``file.py:function``; the shape above is then unused, except
    for `context_length` and `vocab_size`."""
    own_folder: PathText | None = None
    """Folder from which its module is imported."""

    @model_validator(mode="after")
    def _own_is_whole(self) -> Self:
        if self.own is not None and not names_a_function(self.own):
            raise ValueError(f"model.own={self.own!r} names no function; write module:function or file.py:function")
        if self.own is not None and self.init_from is not None:
            raise ValueError("a model of your own makes its own initial weights; leave out model.init_from")
        return self

    @model_validator(mode="after")
    def _shapes_divide(self) -> Self:
        if self.n_head_dim is None and self.n_embd % self.n_head:
            raise ValueError(f"n_embd={self.n_embd} is not divisible by n_head={self.n_head}")
        if self.n_head % self.kv_heads:
            raise ValueError(f"n_head={self.n_head} is not divisible by n_kv_head={self.kv_heads}")
        if self.position == "rotary" and self.head_dim % 2:
            named = "n_embd/n_head" if self.n_head_dim is None else "n_head_dim"
            raise ValueError(f"rotary positions need an even head dimension, and {named} is {self.head_dim}")
        return self

    @model_validator(mode="after")
    def _experts_suffice(self) -> Self:
        if self.n_expert is not None and self.n_expert_active > self.n_expert:
            raise ValueError(
                f"n_expert_active={self.n_expert_active} is more than n_expert={self.n_expert}; "
                f"choose between 1 and {self.n_expert}"
            )
        if self.n_expert is None and self.expert_capacity is not None:
            raise ValueError(f"expert_capacity={self.expert_capacity} needs experts; set n_expert, or leave it out")
        return self

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.n_head_dim or self.n_embd // self.n_head

    @property
    def heads_width(self) -> int:
        """Width of all query heads together: the input of attention's output projection."""
        return self.n_head * self.head_dim

    @property
    def has_qkv_bias(self) -> bool:
        """True if the projection to queries, keys and values has a bias."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.n_kv_head or self.n_head

    @property
    def hidden(self) -> int:
        """Width of the MLP's hidden layer."""
        if self.n_hidden is not None:
            return self.n_hidden
        return -(-8 * self.n_embd // 24) * 8 if self.activation == "swiglu" else 4 * self.n_embd

    @property
    def experts_aligned(self) -> bool:
        """True if rows of expert matrices are aligned to 16 bytes in any dtype, as grouped matrix products require."""
        return self.n_embd % 8 == 0 and self.hidden % 8 == 0

    def expert_places(self, tokens: int) -> int | None:
        """Rows that an expert processes at most out of `tokens` in training; None if there is no limit.

        This is the capacity factor times the expert's even share, rounded up. It does not exceed `tokens`, because no
        expert receives a token twice.
        """
        if self.n_expert is None or self.expert_capacity is None:
            return None
        return min(tokens, math.ceil(self.expert_capacity * tokens * self.n_expert_active / self.n_expert))

    @property
    def vocabulary(self) -> int:
        """Vocabulary size. Raises `ValueError` if the tokenizer has not determined it yet."""
        if self.vocab_size is None:
            raise ValueError("model.vocab_size is not known before the corpus is prepared")
        return self.vocab_size
