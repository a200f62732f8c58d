"""The mixture against a slow loop over tokens and experts, values and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.config import ModelConfig
from assay.errors import UsageError
from assay.model import GPT, MixtureMLP, initializer
from assay.model.generate import generate
from assay.model.gpt import MLP, GatedMLP, build_mlp
from assay.model.hf import to_hf
from support.models import random_ids, random_model

SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 8, "vocab_size": 17, "n_hidden": 24, "bias": False}


@st.composite
def mixtures(draw: st.DrawFn) -> ModelConfig:
    experts = draw(st.integers(1, 5))
    return ModelConfig(
        n_layer=1,
        n_head=1,
        n_embd=draw(st.sampled_from([8, 6])),
        n_hidden=draw(st.sampled_from([16, 10])),
        context_length=draw(st.integers(1, 9)),
        vocab_size=17,
        activation=draw(st.sampled_from(["gelu", "gelu_tanh", "swiglu"])),
        n_expert=experts,
        n_expert_active=draw(st.integers(1, experts)),
        expert_capacity=draw(st.sampled_from([None, None, 0.5, 1.0, 3.0])),
        router_loss=0.0,
    )


def random_mixture(config: ModelConfig, dtype: torch.dtype, seed: int = 0) -> MixtureMLP:
    module = MixtureMLP(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return module


def slow(module: MixtureMLP, x: Tensor, capacity: int | None) -> tuple[Tensor, list[tuple[int, int]]]:
    """One token at a time, one expert at a time → the output, and the (token, choice) pairs that were dropped."""
    config, experts, out, dropped = module.config, module.experts, [], []
    taken = [0] * len(experts.up)
    for token, row in enumerate(x.flatten(0, 1)):
        p = (module.router.weight @ row).softmax(0)
        chosen = sorted(range(len(p)), key=lambda i: -float(p[i].detach()))[: config.n_expert_active]
        total = sum(p[i] for i in chosen) if len(chosen) > 1 else 1.0
        y = torch.zeros_like(row)
        for choice, i in enumerate(chosen):
            taken[i] += 1
            if capacity is not None and taken[i] > capacity:
                dropped.append((token, choice))
                continue
            if experts.gate is not None:
                inner = F.silu(experts.gate[i] @ row) * (experts.up[i] @ row)
            else:
                inner = F.gelu(experts.up[i] @ row, approximate="tanh" if config.activation == "gelu_tanh" else "none")
            y = y + p[i] / total * (experts.down[i] @ inner)
        out.append(y)
    return torch.stack(out).view(x.shape), dropped


@settings(max_examples=60, deadline=None)
@given(config=mixtures(), rows=st.integers(1, 3), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_values_and_gradients_are_those_of_a_loop_over_tokens(
    config: ModelConfig, rows: int, dtype: torch.dtype
) -> None:
    module = random_mixture(config, dtype)
    generator = torch.Generator().manual_seed(1)
    shape = (rows, config.context_length, config.n_embd)
    x = torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True)
    incoming = torch.randn(shape, generator=generator, dtype=dtype)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    expected, _ = slow(module, x, config.expert_places(rows * config.context_length))
    found = module(x)
    torch.testing.assert_close(
        found, expected, rtol=10 * tolerance, atol=tolerance * (1 + float(expected.detach().abs().max()))
    )
    inputs = [x, *module.parameters()]
    wanted = torch.autograd.grad(expected, inputs, incoming, allow_unused=True, materialize_grads=True)
    for one, other in zip(torch.autograd.grad(found, inputs, incoming), wanted, strict=True):
        scale = 1 + float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=10 * tolerance, atol=4 * tolerance * scale)


@pytest.mark.parametrize("width", [16, 12])
def test_experts_that_no_token_chooses_get_a_gradient_of_zero(width: int) -> None:
    config = ModelConfig(**{**SHAPE, "n_embd": width}, n_expert=4, n_expert_active=1)
    module = random_mixture(config, torch.float32)
    with torch.no_grad():
        module.router.weight.zero_()
        module.router.weight[2] = 1.0
    x = torch.rand(2, 8, width)
    module.config = config.model_copy(update={"router_loss": 0.0})
    module(x).square().sum().backward()
    for parameter in module.experts.parameters():
        assert parameter.grad is not None
        assert parameter.grad[2].any()
        assert not parameter.grad[[0, 1, 3]].any()


def test_capacity_drops_the_latest_tokens_of_an_expert_and_only_in_training() -> None:
    config = ModelConfig(**SHAPE, n_expert=2, n_expert_active=1, expert_capacity=1.0, router_loss=0.0)
    module = random_mixture(config, torch.float64)
    with torch.no_grad():
        module.router.weight.zero_()
        module.router.weight[1, 0], module.router.weight[0, 0] = 1.0, -1.0
    x = torch.rand(1, 8, 16, dtype=torch.float64)
    x[0, 1, 0] = -1.0  # the only token for expert 0; expert 1 has four places and seven takers
    zero = [not row.any() for row in module(x)[0]]
    assert zero == [False, False, False, False, False, True, True, True]
    module.eval()
    assert all(row.any() for row in module(x)[0])


def test_no_later_token_takes_an_earlier_ones_place() -> None:
    config = ModelConfig(**SHAPE, n_expert=4, n_expert_active=2, expert_capacity=0.6, router_loss=0.0)
    module = random_mixture(config, torch.float64)
    x = torch.randn(1, 8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    _, dropped = slow(module, x, config.expert_places(8))
    assert dropped
    for length in range(1, 8):
        changed = x.clone()
        changed[0, length:] = -x[0, length:].flip(0)
        assert torch.equal(module(changed)[0, :length], module(x)[0, :length])


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "swiglu"])
def test_one_expert_is_the_dense_mlp(activation: str) -> None:
    config = ModelConfig(**SHAPE, activation=activation, n_expert=1, n_expert_active=1)
    mixture = random_mixture(config, torch.float32)
    dense = build_mlp(config.model_copy(update={"n_expert": None}))
    assert isinstance(dense, MLP | GatedMLP)
    with torch.no_grad():
        for name, parameter in mixture.experts.named_parameters():
            dense.get_parameter(f"{name}.weight").copy_(parameter[0])
    x = torch.randn(2, 8, 16)
    torch.testing.assert_close(mixture(x), dense(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_the_loop_over_experts_gives_what_the_grouped_product_gives(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(**SHAPE, activation=activation, n_expert=5, n_expert_active=2, router_loss=0.0)
    grouped, looped = random_mixture(config, torch.float32), random_mixture(config, torch.float32)
    assert grouped.experts.aligned
    x = torch.randn(2, 8, 16)
    expected = grouped(x)
    expected.square().sum().backward()
    monkeypatch.delattr(F, "grouped_mm", raising=False)
    found = looped(x)
    found.square().sum().backward()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(looped.parameters(), grouped.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)


def test_bfloat16_under_autocast_keeps_the_router_in_float32() -> None:
    config = ModelConfig(**SHAPE, n_expert=4, router_loss=0.0)
    module = random_mixture(config, torch.float32)
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    exact, probabilities = module(x), module._probabilities(x.flatten(0, 1))
    seen: list[torch.dtype] = []
    module.experts.register_forward_hook(lambda _, args, out: seen.extend((args[0].dtype, out.dtype)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = module(x)
        assert torch.equal(module._probabilities(x.flatten(0, 1)), probabilities)
    assert seen == [torch.bfloat16, torch.bfloat16]
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.05)
    low.sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in module.parameters()
    )


def test_stacked_matrices_start_with_the_spread_of_dense_ones() -> None:
    config = ModelConfig(n_layer=8, n_head=4, n_embd=64, vocab_size=17, n_expert=4)
    initialize = initializer(config, seed=3)
    for name, parameter in GPT(config).named_parameters():
        if ".mlp." in name:
            std = 0.02 / math.sqrt(16) if name.endswith("experts.down") else 0.02
            assert float(initialize(name, parameter.shape).std()) == pytest.approx(
                std, rel=0.2 if "router" in name else 0.03
            )


def test_gpt2_cannot_express_a_mixture() -> None:
    config = ModelConfig(**SHAPE, n_expert=4)
    with pytest.raises(UsageError, match=r"cannot express model\.n_expert=4"):
        to_hf(GPT(config).state_dict(), config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_expert": 1}, "n_expert_active=2 is more than n_expert=1; choose between 1 and 1"),
        ({"expert_capacity": 1.5}, "needs experts; set n_expert"),
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)


@pytest.mark.parametrize("capacity", [None, 0.6])
def test_a_later_token_changes_no_earlier_logit(capacity: float | None) -> None:
    config = ModelConfig(**SHAPE, n_expert=4, expert_capacity=capacity)
    model = random_model(config, dtype=torch.float64)
    ids = random_ids(config, rows=1)
    with torch.no_grad():
        before = model.logits(ids)
        for length in range(1, 8):
            changed = ids.clone()
            changed[:, length:] = (changed[:, length:] + 1) % 17
            # Not bit-equal: how many rows an expert multiplies at once may change how it adds up.
            torch.testing.assert_close(model.logits(changed)[:, :length], before[:, :length], rtol=1e-11, atol=1e-12)


def test_text_can_be_drawn_from_it() -> None:
    config = ModelConfig(**SHAPE, n_expert=4, expert_capacity=0.6)
    model = random_model(config)
    drawn = list(generate(model, [1, 2, 3], 12, temperature=0))
    assert len(drawn) == 12
    assert drawn == list(generate(model, [1, 2, 3], 12, temperature=0))
