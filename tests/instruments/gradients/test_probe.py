"""Gradients of micro-batches against torch's own backward."""

import gc

import pytest
import torch

from assay.config import ModelConfig
from assay.instruments.gradients.probe import gradients
from assay.instruments.gradients.scale import module_of
from assay.model.gpt import GPT

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=16, context_length=8, vocab_size=32, dropout=0.5, tie_embeddings=False)


def model() -> GPT:
    torch.manual_seed(0)
    return GPT(CONFIG)


def batches(count: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [tuple(torch.randint(32, (3, 8), generator=draw) for _ in range(2)) for _ in range(count)]  # type: ignore[misc]


def flat(of: GPT, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The slow reference: one backward pass, all gradients in a row."""
    of.zero_grad()
    (of(ids, targets) / targets.numel()).backward()
    return torch.cat([one.grad.flatten() for one in of.parameters() if one.grad is not None]).double()


def test_sums_are_those_of_single_backward_passes() -> None:
    some = batches()
    told: list[tuple[int, int]] = []
    found = gradients(model(), some.__getitem__, len(some), lambda *done: told.append(done))
    reference = model().eval()
    rows = torch.stack([flat(reference, *one) for one in some])
    assert found.sums.squares == pytest.approx(rows.square().sum(1).numpy(), rel=1e-6)
    assert found.sums.with_sum == pytest.approx((rows @ rows.sum(0)).numpy(), rel=1e-6)
    units = rows / rows.norm(dim=1, keepdim=True)
    assert found.sums.unit_square == pytest.approx(units.sum(0).square().sum().item(), rel=1e-6)
    assert told == [(done, 8) for done in range(1, 9)]
    losses = [(reference(*one) / 24).item() for one in some]
    assert found.losses == pytest.approx(losses)


def test_modules_have_the_gradient_of_all_micro_batches_together() -> None:
    some = batches()
    found = {one.module: one for one in gradients(model(), some.__getitem__, len(some)).modules}
    assert list(found) == ["embedding", "block 1", "block 2", "final norm", "head"]
    reference = model().eval()
    flat(reference, *(torch.cat(part) for part in zip(*some, strict=True)))
    for title, one in found.items():
        members = [weight for name, weight in reference.named_parameters() if module_of(name) == title]
        gradient = torch.cat([weight.grad.flatten() for weight in members if weight.grad is not None])
        weights = torch.cat([weight.detach().flatten() for weight in members])
        assert one.parameters == len(weights)
        assert one.gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-5)
        assert one.gradient_rms == pytest.approx(gradient.square().mean().sqrt().item(), rel=1e-5)
        assert one.weight_rms == pytest.approx(weights.square().mean().sqrt().item(), rel=1e-5)


def test_nothing_is_updated_and_no_gradient_is_left() -> None:
    one = model()
    before = [weight.clone() for weight in one.parameters()]
    gradients(one, batches(2).__getitem__, 2)
    assert all(torch.equal(*pair) for pair in zip(before, one.parameters(), strict=True))
    assert all(weight.grad is None for weight in one.parameters())


def test_memory_does_not_grow_with_the_number_of_micro_batches() -> None:
    """Bytes of gradients that live at once, by the tensors that a pass leaves alive when it tells of its progress."""

    def alive(count: int) -> int:
        seen: list[int] = []
        one, some = model(), batches(count)

        def tell(done: int, total: int) -> None:
            gc.collect()
            tensors = (each for each in gc.get_objects() if isinstance(each, torch.Tensor))
            seen.append(sum(each.numel() for each in tensors))

        gradients(one, some.__getitem__, count, tell)
        return max(seen) - 2 * count * some[0][0].numel()

    assert alive(12) == alive(3)
