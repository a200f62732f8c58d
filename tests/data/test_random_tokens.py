"""A folder of random tokens is a prepared folder like any other."""

from pathlib import Path

import numpy as np
import pytest

from assay.data import open_prepared
from assay.data.random_tokens import write_random


@pytest.mark.parametrize("vocab_size", [2, 65, 50257, 100_000])
def test_it_opens_and_its_ids_are_below_the_vocabulary(tmp_path: Path, vocab_size: int) -> None:
    found = open_prepared(write_random(tmp_path / "random", vocab_size, 5000), thorough=True)
    assert (len(found.train), len(found.validation), found.vocab_size) == (5000, 5000, vocab_size)
    assert int(np.max(found.train.ids)) < vocab_size
    assert len(np.unique(found.train.ids)) > min(vocab_size, 5000) // 2
    assert not np.array_equal(found.train.ids, found.validation.ids)


def test_a_seed_repeats_it(tmp_path: Path) -> None:
    one, same, other = (
        open_prepared(write_random(tmp_path / str(place), 100, 50, seed=seed)).digest
        for place, seed in enumerate((1, 1, 2))
    )
    assert one == same != other
