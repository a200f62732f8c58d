"""Batches are pure in (seed, step); validation covers each token once."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.prepared_folder import Batches, Shard, validation_windows
from assay.errors import UsageError

LENGTH = 501


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Shard:
    """Ids 0, 1, 2, …: an id is its own place."""
    return counting(tmp_path_factory.mktemp("shard"), LENGTH)


def counting(folder: Path, length: int) -> Shard:
    np.arange(length, dtype="<u2").tofile(folder / f"{length}.bin")
    return Shard(folder / f"{length}.bin", "validation", "<u2")


@given(st.integers(0, 2**130), st.integers(0, 2**40), st.integers(1, 500))
def test_a_batch_is_pure_and_shifted_by_one(shard: Shard, seed: int, step: int, context: int) -> None:
    inputs, targets = Batches(shard, seed, 4, context).at(step)
    again, _ = Batches(shard, seed, 4, context).at(step)
    assert inputs.shape == targets.shape == (4, context)
    assert inputs.dtype == targets.dtype == np.int64
    assert (targets == inputs + 1).all()
    assert (np.diff(inputs, axis=1) == 1).all()
    assert (inputs == again).all()


def test_inputs_and_targets_are_arrays_of_their_own(shard: Shard) -> None:
    inputs, targets = Batches(shard, 0, 4, 8).at(0)
    for array in (inputs, targets):
        assert array.flags.c_contiguous
        assert array.flags.owndata
        assert array.flags.writeable


@given(st.integers(0, 1000), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_shares_together_are_the_whole(shard: Shard, step: int, count: int) -> None:
    batches = Batches(shard, 7, 12, 16)
    whole = batches.at(step)
    shares = [batches.at(step, share=(index, count)) for index in range(count)]
    for side in (0, 1):
        assert (np.stack([share[side] for share in shares], axis=1).reshape(whole[side].shape) == whole[side]).all()


def test_micro_batches_of_all_shares_are_those_of_the_whole(shard: Shard) -> None:
    batches = Batches(shard, 7, 12, 16)
    whole = np.split(batches.at(0)[0], 3)
    shares = [np.split(batches.at(0, share=(index, 2))[0], 3) for index in range(2)]
    for there, *here in zip(whole, *shares, strict=True):
        assert sorted(np.concatenate(here).tolist()) == sorted(there.tolist())


def test_steps_and_seeds_differ_and_every_place_is_reached(shard: Shard) -> None:
    batches = Batches(shard, 1, 64, LENGTH - 4)
    assert batches.offsets(0).tolist() != batches.offsets(1).tolist()
    assert batches.offsets(0).tolist() != Batches(shard, 2, 64, LENGTH - 4).offsets(0).tolist()
    assert set(batches.offsets(3).tolist()) == {0, 1, 2, 3}


def test_the_stream_is_pinned(shard: Shard) -> None:
    """Another stream would silently make every earlier run another training."""
    assert Batches(shard, 1337, 4, 16).offsets(5).tolist() == [480, 306, 457, 114]


def test_a_batch_that_cannot_be_shared_or_filled_is_refused(shard: Shard) -> None:
    with pytest.raises(UsageError, match="12 sequences cannot be cut into 5"):
        Batches(shard, 0, 12, 16).at(0, share=(0, 5))
    with pytest.raises(ValueError, match="no share 2 of 2"):
        Batches(shard, 0, 12, 16).at(0, share=(2, 2))
    with pytest.raises(UsageError, match=r"validation split has 501 tokens.* needs 502"):
        Batches(shard, 0, 12, LENGTH)
    with pytest.raises(UsageError, match="validation split has 501 tokens"):
        validation_windows(shard, LENGTH, 4)


@given(st.integers(1, 500), st.integers(1, 40))
def test_windows_cover_each_token_but_the_first_once(shard: Shard, context: int, batch_size: int) -> None:
    windows = validation_windows(shard, context, batch_size)
    targets = np.concatenate([target.ravel() for _, target in windows])
    assert targets.tolist() == list(range(1, LENGTH))
    assert windows.targets == len(targets)
    assert all((target == given + 1).all() and len(given) <= batch_size for given, target in windows)


@given(st.integers(1, 250), st.integers(1, 9), st.integers(1, 9))
def test_a_number_of_batches_is_spread_evenly(shard: Shard, context: int, batch_size: int, batches: int) -> None:
    windows = validation_windows(shard, context, batch_size, batches)
    available = (LENGTH - 1) // context
    assert len(windows) == max(1, min(batches, available // batch_size))
    assert all(given.shape == (min(batch_size, available), context) for given, _ in windows)
    starts = np.concatenate([given[:, 0] for given, _ in windows])
    assert (starts % context == 0).all()
    gaps = np.diff(starts // context)
    assert gaps.size == 0 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)
    again = validation_windows(shard, context, batch_size, batches)
    assert all((a[0] == b[0]).all() for a, b in zip(windows, again, strict=True))


def test_windows_index_like_a_list(tmp_path: Path) -> None:
    windows = validation_windows(counting(tmp_path, 12), 4, 2)
    assert [given.shape for given, _ in windows] == [(2, 4), (1, 3)]
    assert windows[-1][1].tolist() == [[9, 10, 11]]
    with pytest.raises(IndexError):
        windows[2]
