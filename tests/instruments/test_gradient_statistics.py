"""Scales of gradients by module in a step of a program, and their agreement and noise over batches."""

import gc
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from assay.config import ModelConfig
from assay.instruments.gradient_statistics import Sums, gradients, mean_cosine, module_of, noise_scale, noting, scales
from assay.model.gpt import GPT
from assay.records.gradients import ModuleGradient
from assay.training.loop import train_step
from support.runs import run_with, specs_of
from support.steps import build_step


def test_scales_are_root_mean_squares_over_the_members_of_a_module() -> None:
    weight, bias = torch.tensor([[3.0, 4.0]]), torch.tensor([0.0])
    (one,) = scales([("blocks.0.a", weight, 2 * weight), ("blocks.0.b", bias, bias)])
    assert (one.module, one.parameters) == ("block 1", 3)
    assert one.gradient_norm == pytest.approx(10)
    assert one.gradient_rms == pytest.approx((100 / 3) ** 0.5)
    assert one.weight_rms == pytest.approx((25 / 3) ** 0.5)


def test_small_gradients_in_float16_do_not_vanish() -> None:
    tiny = torch.full((4,), 1e-5, dtype=torch.float16)
    assert scales([("embedding.weight", tiny, tiny)])[0].gradient_rms == pytest.approx(1e-5, rel=0.01)


@pytest.mark.parametrize("names", [(), ("fp16_mixed",), ("gradient_accumulation", "activation_checkpointing")])
def test_a_watched_step_notes_what_it_would_do_anyway(names: tuple[str, ...]) -> None:
    plain, watched = (build_step(run_with(*specs_of(names))) for _ in range(2))
    found: list[ModuleGradient] = []
    expected, taken = train_step(plain, 0), train_step(noting(watched, found), 0)
    assert taken.loss == expected.loss
    assert taken.log_gradient_norm == expected.log_gradient_norm
    whole = sum(one.gradient_norm**2 for one in found) ** 0.5
    assert torch.tensor(whole).log().item() == pytest.approx(expected.log_gradient_norm, abs=1e-4)
    assert [one.module for one in found] == list(dict.fromkeys(module_of(name) for name, _ in plain.named_parameters()))


Vectors = npt.NDArray[np.float64]


def drawn(seed: int, count: int, sequences: int, noise: float, size: int = 50) -> Vectors:
    """Gradients of a quadratic loss: the true one has norm 1, each sequence adds noise of variance `noise` in all."""
    chance = np.random.default_rng(seed)
    true = np.ones(size) / np.sqrt(size)
    return true + chance.normal(0, np.sqrt(noise / size / sequences), (count, size))


def sums(vectors: Vectors) -> Sums:
    """Return the sums of a few gradients, from all of them at once."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(lengths, lengths, 1)
    return Sums(np.sum(vectors**2, 1), vectors @ vectors.sum(0), float(np.sum(units.sum(0) ** 2)))


def test_it_is_the_published_pair_of_estimators() -> None:
    """Appendix A.1 of McCandlish et al., with B_small = 4 and B_big = 4 · 6."""
    vectors = drawn(0, 6, 4, 10.0)
    small, big = np.mean(np.sum(vectors**2, 1)), np.sum(vectors.mean(0) ** 2)
    squared = (24 * big - 4 * small) / (24 - 4)
    noise = (small - big) / (1 / 4 - 1 / 24)
    found = noise_scale(sums(vectors), 4)
    assert found is not None
    assert (found.squared_gradient, found.noise) == pytest.approx((squared, noise))
    assert found.sequences == pytest.approx(noise / squared)


def test_both_estimates_are_unbiased() -> None:
    found = [noise_scale(sums(one), 4) for one in (drawn(seed, 8, 4, 10.0) for seed in range(400))]
    known = [one for one in found if one is not None]
    assert len(known) > 390
    for figures, truth in (([one.squared_gradient for one in known], 1.0), ([one.noise for one in known], 10.0)):
        assert abs(np.mean(figures) - truth) < 4 * np.std(figures) / np.sqrt(len(figures)) + 0.02


def test_the_standard_error_is_about_the_deviation_over_draws() -> None:
    found = [noise_scale(sums(one), 8) for one in (drawn(seed, 32, 8, 10.0) for seed in range(200))]
    scales = [one.sequences for one in found if one is not None]
    errors = [one.standard_error for one in found if one is not None and one.standard_error is not None]
    assert 0.7 < np.median(errors) / np.std(scales) < 1.4


def test_the_standard_error_leaves_out_each_gradient_once() -> None:
    vectors = drawn(5, 7, 4, 3.0)
    without = [noise_scale(sums(np.delete(vectors, place, 0)), 4) for place in range(7)]
    scales = [one.sequences for one in without if one is not None]
    found = noise_scale(sums(vectors), 4)
    assert found is not None
    assert found.standard_error == pytest.approx(np.sqrt(6 * np.var(scales)))


def test_the_cosine_is_the_mean_over_all_pairs() -> None:
    vectors = drawn(3, 5, 2, 4.0)
    pairs = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in combinations(vectors, 2)]
    assert mean_cosine(sums(vectors)) == pytest.approx(np.mean(pairs))


def test_without_an_answer_there_is_none() -> None:
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert noise_scale(sums(opposite), 4) is None, "the mean gradient is zero"
    assert mean_cosine(sums(opposite)) == pytest.approx(-1)
    assert noise_scale(sums(np.ones((1, 1))), 4) is None
    assert mean_cosine(sums(np.ones((1, 1)))) is None
    assert mean_cosine(sums(np.diag([1.0, 0.0]))) is None
    equal = noise_scale(sums(np.array([[1.0, 0.0], [1.0, 0.0]])), 4)
    assert equal is not None
    assert (equal.sequences, equal.standard_error) == (0.0, None)


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
