"""The balance loss acts on gradients as a term of the loss would, however the loss is scaled, cut or recomputed."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay.config import ModelConfig
from assay.model import GPT, MixtureMLP
from assay.model.balance import scale_balance
from support.models import random_ids, random_model

ALPHA = 0.3


def config_with(**fields: object) -> ModelConfig:
    shape = {"n_layer": 3, "n_head": 2, "n_embd": 8, "context_length": 8, "vocab_size": 17, "n_hidden": 16}
    return ModelConfig(**{**shape, "n_expert": 4, "n_expert_active": 2, "router_loss": ALPHA, **fields})


def gradients(model: GPT, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def with_term(config: ModelConfig, ids: Tensor) -> dict[str, Tensor]:
    """Gradients of a thousandth of the summed loss plus α·n·E·Σ f·P of every layer; the model's own balance is off."""
    model = random_model(config.model_copy(update={"router_loss": 0.0}), dtype=torch.float64)
    terms: list[Tensor] = []

    def note(module: MixtureMLP, args: tuple[Tensor], output: Tensor) -> None:
        p = torch.softmax(args[0].flatten(0, 1) @ module.router.weight.t(), dim=-1)
        chosen = p.topk(config.n_expert_active).indices.flatten()
        f = torch.stack([(chosen == expert).double().mean() for expert in range(p.size(1))])
        terms.append(ALPHA * len(p) * p.size(1) * (f * p.mean(0)).sum())

    for block in model.blocks:
        block.mlp.register_forward_hook(note)
    loss = model(ids, ids.flip(1)) + sum(terms)
    assert len(terms) == config.n_layer
    return gradients(model, loss / 1000)


@pytest.mark.parametrize("fields", [{}, {"n_expert_active": 1}, {"expert_capacity": 0.7}, {"norm_position": "post"}])
@pytest.mark.parametrize("scale", [1.0, 2.0**12])
def test_it_is_a_term_of_the_loss_at_the_scale_of_the_loss(fields: dict[str, object], scale: float) -> None:
    config = config_with(**fields)
    ids = random_ids(config, rows=3)
    model = random_model(config, dtype=torch.float64)
    found = gradients(model, scale * (model(ids, ids.flip(1)) / 1000))
    for name, expected in with_term(config, ids).items():
        torch.testing.assert_close(found[name] / scale, expected, rtol=1e-10, atol=1e-14, msg=name)


def test_the_reported_loss_is_the_cross_entropy_alone() -> None:
    ids = random_ids(config_with())
    model, plain = (random_model(config_with(router_loss=alpha)) for alpha in (ALPHA, 0.0))
    assert torch.equal(model(ids, ids.flip(1)), plain(ids, ids.flip(1)))
    model.eval(), plain.eval()
    assert torch.equal(model(ids, ids.flip(1)), plain(ids, ids.flip(1)))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("capacity", [None, 0.7])
def test_a_recomputed_block_gives_the_same_bits(autocast: bool, capacity: float | None) -> None:
    config = config_with(expert_capacity=capacity, dropout=0.1)
    ids = random_ids(config, rows=3)

    def run(model: GPT) -> tuple[Tensor, dict[str, Tensor]]:
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(ids, ids.flip(1))
        return loss.detach(), gradients(model, loss / ids.numel())

    model, again = random_model(config), random_model(config)
    for block in again.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
    (loss, plain), (other_loss, others) = run(model), run(again)
    assert torch.equal(loss, other_loss)
    assert all(torch.equal(plain[name], others[name]) for name in plain)


@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_micro_batches_add_up_to_the_mean_of_their_balances(alpha: float) -> None:
    """Without a balance loss they are the whole batch; with it each part balances its own tokens."""
    config = config_with(router_loss=alpha)
    ids = random_ids(config, rows=4)
    whole, cut = (random_model(config, dtype=torch.float64) for _ in range(2))
    (whole(ids, ids.flip(1)) / ids.numel()).backward()
    for part in ids.chunk(2):
        (cut(part, part.flip(1)) / ids.numel()).backward()
    parts = [with_term(config, part) for part in ids.chunk(2)]
    for (name, one), (_, other) in zip(whole.named_parameters(), cut.named_parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        if alpha == 0:
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-10, atol=1e-14, msg=name)
        else:
            expected = sum(part[name] for part in parts) * 1000 / ids.numel()
            torch.testing.assert_close(other.grad, expected, rtol=1e-10, atol=1e-14, msg=name)
    router = "blocks.0.mlp.router.weight"
    same = torch.allclose(whole.get_parameter(router).grad, cut.get_parameter(router).grad, rtol=1e-8)
    assert same == (alpha == 0)


def test_a_backward_that_never_meets_the_loss_must_say_its_factor() -> None:
    config = config_with()
    ids = random_ids(config)
    model = random_model(config, dtype=torch.float64)
    model(ids, ids.flip(1)).backward()  # a factor noted in another backward does not count
    with pytest.raises(RuntimeError, match="did not start at the model's summed loss"):
        model.logits(ids).sum().backward()
    with scale_balance(0.5):
        half = gradients(model, model.logits(ids).sum())
    with scale_balance(torch.tensor(0.0)):
        none = gradients(model, model.logits(ids).sum())
    router = "blocks.2.mlp.router.weight"
    assert not torch.equal(half[router], none[router])
