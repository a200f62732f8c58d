"""Inference by roofline: published sizes of caches, limits that meet where they should, and the cost of a training."""

from itertools import pairwise

import pytest

from assay import api
from assay.config import ModelConfig, load
from assay.cost import parameter_count
from assay.errors import UsageError
from assay.estimator.device_memory import CONTEXT
from assay.estimator.inference import Inference, cache_bytes_per_token, weights_bytes
from assay.hardware.devices import DEVICES, device
from assay.model.cache import KeyValueCache
from assay.report import view
from support.models import random_model

GPT2 = ModelConfig(n_layer=12, n_head=12, n_embd=768, context_length=1024, vocab_size=50257)
LLAMA = ModelConfig(n_layer=32, n_head=32, n_embd=4096, context_length=4096, vocab_size=32000)
SMALL = ModelConfig(n_layer=2, n_head=4, n_kv_head=2, n_embd=32, context_length=16, vocab_size=37)


def test_caches_have_their_published_sizes() -> None:
    assert cache_bytes_per_token(GPT2) * 1024 == 37_748_736
    assert cache_bytes_per_token(LLAMA) * 4096 == 2 * 2**30


def test_the_predicted_cache_is_the_one_that_a_model_has() -> None:
    assert KeyValueCache(random_model(SMALL).bfloat16(), 3).nbytes == 3 * 16 * cache_bytes_per_token(SMALL)


@pytest.mark.parametrize(("bits", "size"), [(32, 497_759_232), (16, 248_879_616), (8, 124_439_808), (4, 62_219_904)])
def test_weights_have_their_bits(bits: int, size: int) -> None:
    assert weights_bytes(GPT2, bits) == size


@pytest.mark.parametrize(("bits", "peak"), [(16, 312e12), (4, 312e12), (32, 156e12)])
def test_a_prompt_needs_the_logits_of_its_last_token_alone(bits: int, peak: float) -> None:
    inner = 12 * 12 * 768**2  # matrices of twelve blocks; biases and norms are no products
    operations = 2 * inner * 1024 + 2 * 50257 * 768 + 4 * 12 * 768 * 1024 * 1025 / 2
    found = Inference(model=GPT2, device=device("a100"), bits=bits).at(3, 1024)
    assert found.prefill_seconds == pytest.approx(3 * operations / peak, rel=2e-3)


@pytest.mark.parametrize("name", DEVICES)
def test_limits_change_where_they_are_said_to(name: str) -> None:
    found = Inference(model=GPT2, device=device(name), bits=16)
    for length in (0, int(found.compute_bound_tokens / 2)):
        limit = found.compute_bound_sequences(length)
        assert limit is not None
        assert (found.at(int(limit), length).limit, found.at(int(limit) + 1, length).limit) == ("memory", "products")
    tokens = found.outgrown_tokens / 7
    fewer, more = (found.at(7, int(tokens) + extra).memory_bytes - found.weights_bytes for extra in (0, 1))
    assert fewer <= found.weights_bytes < more


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("preset", ["gpt2-124m", "llama-3.1-8b", "qwen3-0.6b"])
def test_long_sequences_are_never_limited_by_products(preset: str, bits: int) -> None:
    found = Inference(model=load(preset).model, device=device("h100"), bits=bits)
    longest = int(found.compute_bound_tokens)
    assert longest > 0
    last = found.compute_bound_sequences(longest)
    assert last is not None
    assert found.at(int(last) + 1, longest).limit == "products"
    assert found.compute_bound_sequences(longest + 1) is None
    assert found.at(10**9, longest + 1).limit == "memory"


def test_grouped_queries_shrink_the_cache_and_delay_its_limits() -> None:
    """Llama 3.1 8B at 16 bits: 4 query heads share a key, so the cache is a quarter, 128 KiB a token."""
    grouped = load("llama-3.1-8b").model
    full = grouped.model_copy(update={"n_kv_head": None})
    assert cache_bytes_per_token(grouped) == 2**17
    assert cache_bytes_per_token(full) == 4 * 2**17
    few, many = (Inference(model=one, device=device("h100"), bits=16) for one in (grouped, full))
    assert few.compute_bound_tokens > 3 * many.compute_bound_tokens
    assert few.outgrown_tokens == pytest.approx(16_060_522_496 / 2**17)


def test_fewer_bits_bring_both_limits_closer() -> None:
    found = [Inference(model=LLAMA, device=device("a100"), bits=bits) for bits in (16, 8, 4)]
    for one, narrower in pairwise(found):
        assert narrower.compute_bound_sequences() == pytest.approx(one.compute_bound_sequences() / 2)
        assert narrower.outgrown_tokens == pytest.approx(one.outgrown_tokens / 2)
        assert narrower.compute_bound_tokens == one.compute_bound_tokens
        assert narrower.at(1, 0).tokens_per_second == pytest.approx(2 * one.at(1, 0).tokens_per_second)


def test_times_follow_from_bytes_and_products() -> None:
    found = Inference(model=GPT2, device=device("a100"), bits=16)
    one = found.at(1, 1024)
    assert one.decode_seconds == pytest.approx((248_879_616 + 37_748_736) / 2039e9)
    assert one.tokens_per_second == pytest.approx(1 / one.decode_seconds)
    many = found.at(4096, 1)
    products = 12 * 12 * 768**2 + 50257 * 768
    assert many.decode_seconds * 312e12 / 4096 == pytest.approx(2 * products, rel=0.01)  # biases and norms aside
    assert not found.at(4096, 1024).fits
    assert one.fits


MIXTURE = LLAMA.model_copy(update={"n_expert": 8, "n_expert_active": 2, "activation": "swiglu", "n_hidden": 14336})


def test_a_token_reads_its_own_experts_and_many_read_all() -> None:
    """A token of a mixture was said to take all eight experts, of which it takes two, so no time was a lower bound."""
    found = Inference(model=MIXTURE, device=device("h100"), bits=16)
    expert = 3 * 4096 * 14336 * 32
    rest = parameter_count(MIXTURE) - 8 * expert
    for sequences, share in ((1, 2 / 8), (2, 1 - (6 / 8) ** 2), (7, 1 - (6 / 8) ** 7), (1000, 1.0)):
        seconds = 2 * (rest + share * 8 * expert) / 3350e9
        one = found.at(sequences, 0)
        assert one.decode_seconds == pytest.approx(seconds) or one.limit == "products"
        assert one.memory_bytes == found.weights_bytes == 2 * parameter_count(MIXTURE)
    assert found.at(1, 1).prefill_seconds < 0.4 * found.at(1, 100).prefill_seconds


@pytest.mark.parametrize("experts", [(8, 2), (64, 1), (4, 4)])
@pytest.mark.parametrize("length", [0, 64])
def test_limits_of_a_mixture_change_where_they_are_said_to(experts: tuple[int, int], length: int) -> None:
    model = MIXTURE.model_copy(update={"n_expert": experts[0], "n_expert_active": experts[1]})
    found = Inference(model=model, device=device("h100"), bits=16)
    limit = found.compute_bound_sequences(length)
    assert limit is not None
    assert (found.at(int(limit), length).limit, found.at(int(limit) + 1, length).limit) == ("memory", "products")


def test_an_embedding_that_is_no_output_is_looked_up() -> None:
    tied, untied = (LLAMA.model_copy(update={"tie_embeddings": tie}) for tie in (True, False))
    one, two = (Inference(model=model, device=device("a100"), bits=16) for model in (tied, untied))
    assert two.at(1, 0).decode_seconds == pytest.approx(one.at(1, 0).decode_seconds)
    assert two.weights_bytes - one.weights_bytes == 2 * 32000 * 4096


def test_weights_and_cache_leave_room_for_the_context_of_cuda() -> None:
    for name, context in (("h100", CONTEXT.high), ("tpu-v5e", 0)):
        found = Inference(model=GPT2, device=device(name), bits=16)
        each = cache_bytes_per_token(GPT2)
        most = (device(name).memory_bytes - context - found.weights_bytes) // each
        assert found.at(1, most).fits
        assert not found.at(1, most + 1).fits


def test_more_sequences_are_never_slower_in_all() -> None:
    found = Inference(model=LLAMA, device=device("l4"), bits=8)
    speeds = [found.at(count, 512).tokens_per_second for count in range(1, 200)]
    assert speeds == sorted(speeds)


def test_the_cost_of_a_training() -> None:
    """GPT-3 on 1,024 A100s: Narayanan et al. (arXiv:2104.04473) say 34 days at 140 TFLOP/s with recomputation."""
    shape = ("model.n_layer=96", "model.n_head=96", "model.n_embd=12288", "model.context_length=2048")
    found = api.training_cost("gpt2-124m", *shape, tokens=300e9, devices=1024, mfu=0.75 * 140 / 312, price=2.0)
    assert found.seconds / 86400 == pytest.approx(34, rel=0.03)
    assert found.money == pytest.approx(2 * 1024 * found.seconds / 3600)
    assert found.kilowatt_hours == pytest.approx(found.device_hours * 0.4)
    assert view(found).values()["flops"].keys() == {"Kaplan", "PaLM", "Chinchilla"}
    assert any("money" in str(block) for block in view(found).blocks())


def test_reports_have_a_row_for_each_number_of_sequences() -> None:
    found = api.inference("gpt2-124m", device="L4", bits=8)
    values = view(found).values()
    assert len(values["rows"]) == 6
    assert {one["tokens"] for one in values["by_context"]} == {16, 64, 256, 1024}
    assert values["by_bits"]["8"]["compute_bound_sequences"] == values["compute_bound_sequences"]
    said = "\n".join(map(str, view(found).blocks()))
    assert "Products limit a token" in said
    assert "does not fit" in said
    assert "query heads share" not in said
    assert "2 query heads share" in "\n".join(map(str, view(api.inference("qwen3-0.6b")).blocks()))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"device": "h10"}, "no datasheet of a device 'h10' is known; did you mean 'h100'"),
        ({"bits": 3}, "weights have 32 or 16 or 8 or 4 bits, and not 3"),
    ],
)
def test_an_impossible_prediction_is_a_sentence(asked: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        api.inference("gpt2-124m", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [{"tokens": 0}, {"tokens": 1e9, "mfu": 1.2}, {"tokens": 1e9, "devices": 0}])
def test_an_impossible_training_is_a_sentence(asked: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"is not possible; give a number from|must be positive, and none above"):
        api.training_cost("gpt2-124m", **asked)  # type: ignore[arg-type]


def test_a_vocabulary_that_no_text_tells_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"set model\.vocab_size"):
        api.inference("shakespeare-char-cpu", "data.path=/nowhere/at/all.txt")
