"""The GPT, and the ways to carry its weights in and out."""

from assay.model.attention import Attention, HandCodedAttention, SdpaAttention
from assay.model.gpt import GPT, TIED, Block, Embedding, Head, initializer, tie
from assay.model.loss import ChunkedCrossEntropy
from assay.model.moe import MixtureMLP

__all__ = [
    "GPT",
    "TIED",
    "Attention",
    "Block",
    "ChunkedCrossEntropy",
    "Embedding",
    "HandCodedAttention",
    "Head",
    "MixtureMLP",
    "SdpaAttention",
    "initializer",
    "tie",
]
