"""Noise scale and cosines against their definitions, and against gradients whose noise is known."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from assay.instruments.gradients.noise import Sums, mean_cosine, noise_scale

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
