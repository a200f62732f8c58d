"""The shape of a GPT decoder, and the numbers that follow from it."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from assay.config.base import Setting
from assay.config.paths import PathText

EPSILON = 1e-5
"""Added to the variance in every norm, as in GPT-2 and nanoGPT."""

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class ModelConfig(Setting):
    """A decoder-only transformer in the family of GPT-2, with the variants that the seeds compare."""

    n_layer: Annotated[int, Field(ge=1, le=10_000)] = 6
    n_head: PositiveInt = 6
    n_embd: PositiveInt = 384
    context_length: PositiveInt = 256
    vocab_size: PositiveInt | None = None
    """Rows of the embedding. None: as many as the tokenizer has."""
    n_kv_head: PositiveInt | None = None
    """Key and value heads (grouped-query attention, arXiv:2305.13245). None: as many as query heads."""
    n_hidden: PositiveInt | None = None
    """Width of the MLP. None: 4 × n_embd, or 8/3 × n_embd in whole multiples of 8 for SwiGLU."""
    bias: bool = True
    """Biases in linear layers and LayerNorms."""
    dropout: Probability = 0.0
    norm: Literal["layer", "rms"] = "layer"
    norm_position: Literal["pre", "post"] = "pre"
    """`pre` normalizes the input of each branch and the decoder's output; `post` the sum after each branch."""
    position: Literal["learned", "rotary"] = "learned"
    rotary_base: PositiveFloat = 10_000.0
    activation: Literal["gelu", "gelu_tanh", "swiglu"] = "gelu"
    n_expert: PositiveInt | None = None
    """Experts in place of each MLP, every one `hidden` wide and without biases. None: the dense MLP."""
    n_expert_active: PositiveInt = 2
    """Experts that each token is sent to."""
    expert_capacity: PositiveFloat | None = None
    """Places of an expert in training, as a multiple of its even share of tokens (arXiv:2101.03961). None: no limit."""
    router_loss: NonNegativeFloat = 0.01
    """Coefficient of the load-balancing loss, which acts on gradients and is in no reported loss."""
    qk_norm: bool = False
    """RMS-normalize queries and keys over the head dimension (arXiv:2010.04245)."""
    tie_embeddings: bool = True
    """The output projection shares the token embedding's weight (arXiv:1608.05859)."""
    init_std: PositiveFloat = 0.02
    init_from: PathText | None = None
    """A folder with a Hugging Face GPT-2 checkpoint or an export, or a run, whose weights to start from.

    Fields of the model that nobody has set take that model's values; those that were set must be the same.
    """

    @model_validator(mode="after")
    def _shapes_divide(self) -> Self:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd={self.n_embd} is not divisible by n_head={self.n_head}")
        if self.n_head % self.kv_heads:
            raise ValueError(f"n_head={self.n_head} is not divisible by n_kv_head={self.kv_heads}")
        if self.position == "rotary" and self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head dimension, and n_embd/n_head is {self.head_dim}")
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
        return self.n_embd // self.n_head

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
        """Whether rows of expert matrices start at multiples of 16 bytes in any dtype, as grouped products ask."""
        return self.n_embd % 8 == 0 and self.hidden % 8 == 0

    def expert_places(self, tokens: int) -> int | None:
        """Rows that an expert takes of `tokens` in training; None where there is no limit.

        The capacity factor times the expert's even share, rounded up; no expert sees a token twice.
        """
        if self.n_expert is None or self.expert_capacity is None:
            return None
        return min(tokens, math.ceil(self.expert_capacity * tokens * self.n_expert_active / self.n_expert))

    @property
    def vocabulary(self) -> int:
        """The vocabulary's size, once it is known. Raises `ValueError` before the tokenizer has named it."""
        if self.vocab_size is None:
            raise ValueError("model.vocab_size is not known before the corpus is prepared")
        return self.vocab_size
