import math

import pytest
import torch
from hypothesis import given, settings
from torch import nn

from assay.config import ModelConfig
from assay.model import GPT, TIED, initializer, tie
from support.models import VOCABULARY, configurations, loss_and_gradients, random_ids, random_model, with_sdpa

GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "context_length": 1024, "vocab_size": 50257}


@pytest.mark.parametrize(
    ("changes", "published"),
    [
        ({}, 124_439_808),
        ({"n_layer": 24, "n_head": 16, "n_embd": 1024}, 354_823_168),
        ({"n_layer": 36, "n_head": 20, "n_embd": 1280}, 774_030_080),
        ({"n_layer": 48, "n_head": 25, "n_embd": 1600}, 1_557_611_200),
        ({"bias": False}, 124_337_664),
        ({"vocab_size": 50304}, 124_475_904),
    ],
)
def test_parameter_counts_are_the_published_ones(changes: dict[str, int], published: int) -> None:
    with torch.device("meta"):
        model = GPT(ModelConfig(**{**GPT2, **changes}))
    assert sum(parameter.numel() for parameter in model.parameters()) == published


@settings(max_examples=30, deadline=None)
@given(configurations())
def test_a_later_token_changes_no_earlier_logit(config: ModelConfig) -> None:
    for model in (random_model(config), with_sdpa(random_model(config))):
        ids = random_ids(config)
        last = config.context_length - 1
        changed = ids.clone()
        changed[:, last] = (changed[:, last] + 1) % VOCABULARY
        with torch.no_grad():
            before, after = model.logits(ids), model.logits(changed)
        assert torch.equal(before[:, :last], after[:, :last])
        assert not torch.equal(before[:, last], after[:, last])


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_both_attention_cores_give_the_same_loss_and_gradients(config: ModelConfig) -> None:
    ids = random_ids(config, rows=3)
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-13)):
        loss, gradients = loss_and_gradients(random_model(config, dtype=dtype), ids)
        other_loss, other_gradients = loss_and_gradients(with_sdpa(random_model(config, dtype=dtype)), ids)
        torch.testing.assert_close(other_loss, loss, rtol=tolerance, atol=tolerance)
        for name, gradient in gradients.items():
            scale = 1.0 + float(gradient.abs().max())
            torch.testing.assert_close(other_gradients[name], gradient, rtol=0, atol=tolerance * scale, msg=name)


@settings(max_examples=25, deadline=None)
@given(configurations())
def test_the_loss_is_the_sum_over_targets_of_the_logits_cross_entropy(config: ModelConfig) -> None:
    model, ids = random_model(config, dtype=torch.float64), random_ids(config)
    targets = ids.flip(0)
    with torch.no_grad():
        chances = model.logits(ids).softmax(dim=-1)
        loss = model(ids, targets)
    expected = -sum(chances[i].log() for i in _positions(chances.shape, targets))
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


def _positions(shape: torch.Size, targets: torch.Tensor) -> list[tuple[int, int, int]]:
    return [(row, t, int(targets[row, t])) for row in range(shape[0]) for t in range(shape[1])]


def _block_by_hand(model: GPT, x: torch.Tensor) -> torch.Tensor:
    """Blocks and final norm from their definitions, at the placement that the configuration names."""
    for block in model.blocks:
        if model.config.norm_position == "pre":
            x = x + block.attention(block.attention_norm(x))
            x = x + block.mlp(block.mlp_norm(x))
        else:
            x = block.attention_norm(x + block.attention(x))
            x = block.mlp_norm(x + block.mlp(x))
    return model.head.norm(x) if model.config.norm_position == "pre" else x


@settings(max_examples=25, deadline=None)
@given(configurations())
def test_logits_follow_the_definition_of_embedding_blocks_and_head(config: ModelConfig) -> None:
    model, ids = random_model(config, dtype=torch.float64), random_ids(config)
    with torch.no_grad():
        x = nn.functional.one_hot(ids, VOCABULARY).double() @ model.embedding.token.weight
        if config.position == "learned":
            x = x + model.embedding.position.weight
        logits = torch.einsum("bte,ve->btv", _block_by_hand(model, x), model.head.projection.weight)
        if (cap := config.logit_softcap) is not None:
            ahead, back = (logits / cap).exp(), (-logits / cap).exp()
            logits = cap * (ahead - back) / (ahead + back)
        torch.testing.assert_close(model.logits(ids), logits, rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(configurations())
def test_the_modules_are_those_that_the_configuration_names(config: ModelConfig) -> None:
    model = GPT(config)
    names = dict(model.named_parameters())
    biased = [name for name in names if name.endswith(".bias")]
    assert any(".qkv." in name for name in biased) == config.has_qkv_bias
    assert any(".qkv." not in name for name in biased) == config.bias
    assert ("embedding.position.weight" in names) == (config.position == "learned")
    assert ("head.projection.weight" in names) == (not config.tie_embeddings)
    assert ("head.norm.weight" in names) == (config.norm_position == "pre")
    assert any("gate" in name for name in names) == (config.activation == "swiglu")
    assert any("q_norm" in name for name in names) == config.qk_norm


def test_tied_weights_are_one_parameter_and_get_both_gradients() -> None:
    config = ModelConfig(n_layer=1, n_head=2, n_embd=8, context_length=4, vocab_size=VOCABULARY)
    tied, ids = random_model(config, dtype=torch.float64), random_ids(config)
    assert tied.head.projection.weight is tied.embedding.token.weight
    untied = random_model(config.model_copy(update={"tie_embeddings": False}), dtype=torch.float64)
    untied.load_state_dict(tied.state_dict())
    _, one = loss_and_gradients(tied, ids)
    _, two = loss_and_gradients(untied, ids)
    both = two["embedding.token.weight"] + two["head.projection.weight"]
    torch.testing.assert_close(one["embedding.token.weight"], both, rtol=1e-12, atol=1e-14)
    tie(untied, TIED)
    assert untied.head.projection.weight is untied.embedding.token.weight


def test_initialization_has_the_spread_that_its_name_asks_for() -> None:
    config = ModelConfig(n_layer=8, n_head=4, n_embd=128, context_length=64, vocab_size=300, tie_embeddings=False)
    initialize = initializer(config, seed=3)
    for name, parameter in GPT(config).named_parameters():
        value = initialize(name, parameter.shape)
        assert value.shape == parameter.shape
        if name.endswith(".bias"):
            assert not value.any(), name
        elif value.dim() == 1:
            assert bool((value == 1).all()), name
        else:
            residual = name.endswith(("attention.projection.weight", "mlp.down.weight"))
            std = 0.02 / math.sqrt(16) if residual else 0.02
            assert float(value.std()) == pytest.approx(std, rel=0.03), name
            assert abs(float(value.mean())) < 4 * std / math.sqrt(value.numel()), name


def test_initialization_is_pure_in_seed_and_name() -> None:
    config = ModelConfig(vocab_size=VOCABULARY)
    shape = torch.Size([5, 7])
    first = initializer(config, 0)
    value = first("blocks.0.mlp.up.weight", shape)
    torch.manual_seed(99)
    first("blocks.1.mlp.up.weight", shape)
    assert torch.equal(first("blocks.0.mlp.up.weight", shape), value)
    assert torch.equal(initializer(config, 0)("blocks.0.mlp.up.weight", shape), value)
    assert not torch.equal(first("blocks.1.mlp.up.weight", shape), value)
    assert not torch.equal(initializer(config, 1)("blocks.0.mlp.up.weight", shape), value)


def test_the_initialized_model_knows_nothing_yet() -> None:
    config = ModelConfig(n_layer=2, n_head=2, n_embd=32, context_length=16, vocab_size=VOCABULARY)
    model, initialize = GPT(config), initializer(config, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initialize(name, parameter.shape))
        ids = random_ids(config, rows=8)
        assert float(model(ids, ids.flip(1)) / ids.numel()) == pytest.approx(math.log(VOCABULARY), abs=0.02)


@pytest.mark.parametrize("sdpa", [False, True])
def test_dropout_is_decided_by_the_seed_and_off_in_evaluation(sdpa: bool) -> None:
    config = ModelConfig(n_layer=2, n_head=2, n_embd=8, context_length=8, vocab_size=VOCABULARY, dropout=0.3)
    model, ids = random_model(config), random_ids(config)
    plain = random_model(config.model_copy(update={"dropout": 0.0}))
    if sdpa:
        model, plain = with_sdpa(model), with_sdpa(plain)

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return float(model(ids, ids).detach())

    assert loss(0) == loss(0)
    assert loss(0) != loss(1)
    model.eval()
    assert loss(0) == loss(1) == float(plain(ids, ids).detach())


@pytest.mark.parametrize("core", ["hand", "sdpa"])
def test_attention_weights_are_dropped_too(core: str) -> None:
    config = ModelConfig(n_layer=1, n_head=2, n_embd=8, context_length=8, vocab_size=VOCABULARY, dropout=0.5)
    model = random_model(config) if core == "hand" else with_sdpa(random_model(config))
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    torch.manual_seed(0)
    dropped = model.blocks[0].attention.core(q, k, v)
    model.eval()
    assert not torch.allclose(dropped, model.blocks[0].attention.core(q, k, v))
