"""A cache of keys and values against the whole window: equal logits, equal tokens, and bytes by the formula."""

import pytest
import torch

from assay.config import ModelConfig
from assay.model.attention import Attention, HandCodedAttention, SdpaAttention
from assay.model.cache import KeyValueCache
from assay.model.generate import generate
from support.models import random_model

SHAPE = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 16, "vocab_size": 37, "dropout": 0.2}
VARIANTS = {
    "plain": {},
    "grouped": {"n_kv_head": 1},
    "rotary": {"position": "rotary", "qk_norm": True, "n_kv_head": 2},
    "post": {"norm_position": "post", "bias": False},
    "llama": {"position": "rotary", "norm": "rms", "activation": "swiglu", "tie_embeddings": False},
    "llama 3.1": {"position": "rotary", "norm": "rms", "n_kv_head": 2, "rotary_factor": 8.0, "rotary_context": 8},
    "qwen": {"position": "rotary", "norm": "rms", "n_head_dim": 12, "bias": False, "qkv_bias": True, "norm_eps": 1e-3},
}


def config(variant: str) -> ModelConfig:
    return ModelConfig.model_validate(SHAPE | VARIANTS[variant])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cuts", [(16,), (1,) * 16, (5, 1, 1, 7, 2)])
def test_logits_are_those_of_the_whole_text(variant: str, cuts: tuple[int, ...]) -> None:
    model = random_model(config(variant)).double()
    text = torch.randint(37, (3, 16), generator=torch.Generator().manual_seed(0))
    cache, done = KeyValueCache(model, 3), 0
    for cut in cuts:
        found = cache.logits(text[:, done : done + cut].tolist())
        done += cut
        assert cache.length == done
        with torch.no_grad():
            expected = model.eval().logits(text[:, :done])[:, -1]
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tokens_are_equal_up_to_the_context(variant: str) -> None:
    model = random_model(config(variant)).double()
    for temperature in (0.0, 1.0):
        with_cache, without = (
            list(generate(model, [3, 1], 14, temperature, seed=4, cache=one)) for one in (True, False)
        )
        assert with_cache == without


def test_a_full_cache_is_filled_again_with_the_second_half() -> None:
    model = random_model(config("rotary")).double().eval()
    ids = [5, 6, 7]
    first = 0
    for _ in range(40):
        if len(ids) - first > 16:
            first = len(ids) - 8
        with torch.no_grad():
            ids.append(int(model.logits(torch.tensor([ids[first:]]))[0, -1].argmax()))
    assert list(generate(model, [5, 6, 7], 40, temperature=0.0)) == ids[3:]


def test_a_long_prompt_is_cut_to_the_context() -> None:
    model = random_model(config("plain")).double().eval()
    prompt = list(range(30))
    with torch.no_grad():
        expected = int(model.logits(torch.tensor([prompt[-16:]]))[0, -1].argmax())
    assert next(generate(model, prompt, 1, temperature=0.0)) == expected


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_are_two_numbers_for_each_layer_head_channel_and_token(variant: str) -> None:
    shape = config(variant)
    numbers = 2 * shape.n_layer * shape.kv_heads * shape.head_dim * shape.context_length
    assert KeyValueCache(random_model(shape), 3).nbytes == 3 * 4 * numbers
    assert KeyValueCache(random_model(shape).bfloat16()).nbytes == 2 * numbers


def test_the_model_is_as_before_between_two_tokens() -> None:
    model = random_model(config("rotary"))
    cores = [one.core for one in model.modules() if isinstance(one, Attention)]
    drawn = generate(model, [1, 2], 3)
    next(drawn)
    assert model.training
    assert [one.core for one in model.modules() if isinstance(one, Attention)] == cores
    assert all(isinstance(one, HandCodedAttention | SdpaAttention) for one in cores)
    assert model.embedding.positions is None


def test_too_many_tokens_are_an_error() -> None:
    cache = KeyValueCache(random_model(config("plain")))
    with pytest.raises(ValueError, match="17 tokens do not fit into a context of 16"):
        cache.logits([list(range(17))])
