"""The GPT model, its initialization, and the import and export of its weights."""

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
