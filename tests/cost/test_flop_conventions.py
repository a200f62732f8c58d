"""Model FLOPs by convention against the figures of their papers and of nanoGPT."""

import pytest

from assay.config import ModelConfig
from assay.cost.flop_conventions import CONVENTIONS, chinchilla, inner_parameters, kaplan, palm
from assay.cost.gpt_tape import parameter_count

GPT2 = ModelConfig(n_layer=12, n_head=12, n_embd=768, context_length=1024, vocab_size=50257)
GPT3 = ModelConfig(n_layer=96, n_head=96, n_embd=12288, context_length=2048, vocab_size=50257)
GPT3_SMALL = ModelConfig(n_layer=12, n_head=12, n_embd=768, context_length=2048, vocab_size=50257)
PETAFLOPS_DAY = 8.64e19


def test_kaplan_gives_the_compute_of_gpt_3() -> None:
    """Brown et al. 2020, table D.1: 3.14e23 FLOPs for 300 billion tokens, with all 174.6 billion parameters."""
    assert kaplan(GPT3) * 300e9 == pytest.approx(3.14e23, rel=0.005)
    assert parameter_count(GPT3) == pytest.approx(174.6e9, rel=0.001)


def test_palm_is_nanogpts_estimate() -> None:
    """nanoGPT leaves out position embeddings: 6·N + 12·L·H·Q·T."""
    positions = 6 * 1024 * 768
    assert palm(GPT2) - positions == 6 * (124_439_808 - 1024 * 768) + 12 * 12 * 12 * 64 * 1024


def test_chinchilla_without_embedding_and_softmax_is_nanogpts_count_of_every_product() -> None:
    """nanoGPT's notebook: 291,648,307,200 FLOPs in forward for 1024 tokens of GPT-2 124M."""
    beside = 2 * 50257 * 768 + 12 * 3 * 12 * 1024
    assert (chinchilla(GPT2) // 3 - beside) * 1024 == 291_648_307_200


@pytest.mark.parametrize(
    ("model", "flops", "days"), [(GPT3_SMALL, 2.25e20, 2.60), (GPT3, 3.14e23, 3.64e3)], ids=["125M", "175B"]
)
def test_table_d1_of_gpt_3(model: ModelConfig, flops: float, days: float) -> None:
    """Brown et al. 2020, table D.1: FLOPs = 6·N·D for 300 billion tokens, and the same in petaflop/s-days."""
    ours = 6 * parameter_count(model) * 300e9
    assert ours == pytest.approx(flops, rel=0.005)
    assert ours / PETAFLOPS_DAY == pytest.approx(days, rel=0.005)


@pytest.mark.parametrize(
    "change",
    [
        {"tie_embeddings": False},
        {"position": "rotary", "n_kv_head": 2, "activation": "swiglu", "norm": "rms", "bias": False},
        {"n_expert": 4, "n_expert_active": 2},
    ],
)
def test_inner_parameters_are_all_but_the_ends(change: dict[str, object]) -> None:
    small, large = (
        ModelConfig.model_validate(
            {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": length, "vocab_size": size} | change
        )
        for size, length in ((100, 8), (1000, 64))
    )
    assert inner_parameters(small) == inner_parameters(large)
    for convention in CONVENTIONS.values():
        assert convention(large) >= convention(small) > 0
