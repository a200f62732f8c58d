"""Published configurations of large GPTs with their published figures."""

from dataclasses import dataclass

from assay.config import ModelConfig

A100_FLOPS = 312e12
"""Dense, 16 bits; NVIDIA A100 datasheet."""


def gpt(layers: int, width: int, heads: int) -> ModelConfig:
    """A GPT of both papers: sequences of 2048 and a vocabulary of 51,200."""
    return ModelConfig(n_layer=layers, n_embd=width, n_head=heads, context_length=2048, vocab_size=51_200, dropout=0.1)


@dataclass(frozen=True)
class Megatron:
    """A row of table 1 of arXiv:2104.04473: full recomputation on A100s, one step."""

    billions: float
    model: ModelConfig
    tp: int
    pp: int
    devices: int
    batch: int
    teraflops: float
    """Achieved by a device, recomputation counted."""
    petaflops: float
    """Of all together."""


MEGATRON = (
    Megatron(1.7, gpt(24, 2304, 24), 1, 1, 32, 512, 137, 4.4),
    Megatron(3.6, gpt(30, 3072, 32), 2, 1, 64, 512, 138, 8.8),
    Megatron(7.5, gpt(36, 4096, 32), 4, 1, 128, 512, 142, 18.2),
    Megatron(18.4, gpt(40, 6144, 48), 8, 1, 256, 1024, 135, 34.6),
    Megatron(39.1, gpt(48, 8192, 64), 8, 2, 512, 1536, 138, 70.8),
    Megatron(76.1, gpt(60, 10240, 80), 8, 4, 1024, 1792, 140, 143.8),
    Megatron(145.6, gpt(80, 12288, 96), 8, 8, 1536, 2304, 148, 227.1),
    Megatron(310.1, gpt(96, 16384, 128), 8, 16, 1920, 2160, 155, 297.4),
    Megatron(529.6, gpt(105, 20480, 128), 8, 35, 2520, 2520, 163, 410.2),
    Megatron(1008.0, gpt(128, 25600, 160), 8, 64, 3072, 3072, 163, 502.0),
)


@dataclass(frozen=True)
class Korthikanti:
    """A row of tables 3 and 5 of arXiv:2205.05198: sequence parallelism and selective recomputation on A100s."""

    billions: float
    model: ModelConfig
    pp: int
    chunks: int
    devices: int
    batch: int
    micro_batch: int
    full_seconds: float
    """With everything recomputed."""
    seconds: float
    mfu: float
    hfu: float


KORTHIKANTI = (
    Korthikanti(22, gpt(48, 6144, 64), 1, 1, 8, 4, 4, 1.42, 1.10, 0.415, 0.437),
    Korthikanti(175, gpt(96, 12288, 96), 8, 3, 64, 64, 1, 18.13, 13.75, 0.514, 0.528),
    Korthikanti(530, gpt(105, 20480, 128), 35, 3, 280, 280, 1, 49.05, 37.83, 0.560, 0.570),
    Korthikanti(1000, gpt(128, 25600, 160), 64, 1, 512, 512, 1, 94.42, 71.49, 0.563, 0.570),
)
