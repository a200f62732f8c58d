"""draft"""

import random

from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec

FLOATS = ("", "", "", "bf16_mixed", "bf16_full", "fp16_mixed", "fp16_full")
MEMORY = (
    "",
    "",
    "activation_checkpointing",
    "activation_checkpointing:every=2",
    "selective_checkpointing",
    "selective_checkpointing:policy=matmuls",
)
ATTENTION = ("", "", "sdpa_attention", "sdpa_attention:backend=math")
LOSS = ("", "", "chunked_cross_entropy", "chunked_cross_entropy:chunks=3")
BATCH = ("", "", "gradient_accumulation:micro_batches=2")
OPTIMIZER = ("", "", "", "fused_adamw", "foreach_adamw", "adam", "sgd", "lion", "adafactor", "muon", "adamw_bf16_state")
OTHERS = ("", "", "", "vocab_padding", "weight_tying", "optimizer_in_backward")


def drawn(seed):
    g = random.Random(seed)
    n_head = g.choice([1, 2, 4, 6])
    dim = g.choice([4, 8, 16, 32])
    dropout = g.choice([0.0, 0.0, 0.1, 0.25])
    model = ModelConfig(
        n_layer=g.randint(1, 3),
        n_head=n_head,
        n_kv_head=g.choice([k for k in (1, 2, 3, 6) if n_head % k == 0]),
        n_embd=n_head * dim,
        context_length=g.choice([8, 33, 64, 100, 339]),
        vocab_size=g.choice([17, 65, 300, 1000]),
        bias=g.random() < 0.5,
        dropout=dropout,
        norm=g.choice(["layer", "rms"]),
        norm_position=g.choice(["pre", "pre", "post"]),
        position=g.choice(["learned", "rotary"]),
        activation=g.choice(["gelu", "gelu_tanh", "swiglu"]),
        qk_norm=g.random() < 0.3,
        tie_embeddings=g.random() < 0.6,
    )
    stack = [g.choice(x) for x in (FLOATS, MEMORY, ATTENTION, LOSS, BATCH, OPTIMIZER, OTHERS)]
    specs = tuple(Spec.parse(one) for one in stack if one)
    return Run(
        model=model, training=TrainingConfig(batch_size=g.choice([2, 4, 6, 10])), device="cpu", optimizations=specs
    )
