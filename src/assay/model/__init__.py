"""The GPT, and the ways to carry its weights in and out."""

from assay.model.attention import Attention, HandCodedAttention, SdpaAttention
from assay.model.gpt import GPT, TIED, Block, Embedding, Head, initializer, tie

__all__ = [
    "GPT",
    "TIED",
    "Attention",
    "Block",
    "Embedding",
    "HandCodedAttention",
    "Head",
    "SdpaAttention",
    "initializer",
    "tie",
]
