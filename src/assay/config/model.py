"""The shape of a GPT decoder, and the numbers that follow from it."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from assay.config.base import Frozen

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class ModelConfig(Frozen):
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
    qk_norm: bool = False
    """RMS-normalize queries and keys over the head dimension (arXiv:2010.04245)."""
    tie_embeddings: bool = True
    """The output projection shares the token embedding's weight (arXiv:1608.05859)."""
    init_std: PositiveFloat = 0.02
    init_from: str | None = None
    """A folder with a Hugging Face GPT-2 checkpoint, or the id of a run, whose weights to start from."""

    @model_validator(mode="after")
    def _shapes_divide(self) -> Self:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd={self.n_embd} is not divisible by n_head={self.n_head}")
        if self.n_head % self.kv_heads:
            raise ValueError(f"n_head={self.n_head} is not divisible by n_kv_head={self.kv_heads}")
        if self.position == "rotary" and self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head dimension, and n_embd/n_head is {self.head_dim}")
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
    def vocabulary(self) -> int:
        """The vocabulary's size, once it is known. Raises `ValueError` before the tokenizer has named it."""
        if self.vocab_size is None:
            raise ValueError("model.vocab_size is not known before the corpus is prepared")
        return self.vocab_size
