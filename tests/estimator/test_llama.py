"""The ledger of Llama's and Qwen's parts: the predicted peak is the measured one, alone and with techniques."""

import pytest

from assay.config import load
from support.peaks import assert_exact

TINY = load("llama-tiny", ["model.vocab_size=61"]).model.model_dump(exclude_defaults=True)
KINDS: dict[str, dict[str, object]] = {
    "llama": {},
    "llama 3.1": {"rotary_base": 500.0, "rotary_factor": 8.0, "rotary_context": 16, "n_hidden": 96},
    "llama 2": {"n_kv_head": 4, "tie_embeddings": False},
    "qwen2": {"qkv_bias": True, "norm_eps": 1e-6},
    "qwen3, wide heads": {"qk_norm": True, "n_head_dim": 32, "norm_eps": 1e-6},
    "qwen3, narrow heads": {"qk_norm": True, "n_head_dim": 6, "n_kv_head": 1, "tie_embeddings": False},
}
STACKS = ("sdpa_attention+fused_adamw", "bf16_mixed", "activation_checkpointing")


@pytest.mark.parametrize("threads", [1], indirect=True)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("kind", "stack"), [*((kind, "") for kind in KINDS), *(("qwen3, wide heads", stack) for stack in STACKS)]
)
def test_the_peak_is_the_measured_one(kind: str, stack: str) -> None:
    assert_exact({**TINY, **KINDS[kind]}, 4, stack)
