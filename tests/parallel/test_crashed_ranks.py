"""Ranks of these tests that crash: the signal is seen even if a neighbour fails first, and all begin again once."""

import os
import signal
from pathlib import Path

import pytest

import support.ranks
import support.ranks.process
from support.ranks import compute
from support.ranks.forks import _fork

CASE = {"run": {"ranks": 2}}


def test_a_signal_is_seen_though_the_neighbour_fails_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(rank: int, asked: Path, answered: Path) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the connection was closed by its peer")

    monkeypatch.setattr(support.ranks.process, "be", crash)
    assert _fork(2, tmp_path, tmp_path, tmp_path / "errors.txt") == -signal.SIGKILL


def test_all_begin_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [-signal.SIGABRT, 0]

    def forked(ranks: int, asked: Path, answered: Path, errors: Path) -> int:
        errors.write_text("malloc(): unaligned tcache chunk detected")
        answered.write_text('[{"losses": []}]')
        return codes.pop(0)

    monkeypatch.setattr(support.ranks, "forked", forked)
    with pytest.warns(UserWarning, match="signal 6 ended a rank, and all ranks begin again: malloc"):
        assert compute([CASE], tmp_path) == [{"losses": []}]
    codes[:] = [-signal.SIGABRT, -signal.SIGABRT]
    with pytest.warns(UserWarning, match="begin again"), pytest.raises(AssertionError, match="malloc"):
        compute([CASE], tmp_path)
    codes[:] = [1]
    with pytest.raises(AssertionError, match="malloc"):
        compute([CASE], tmp_path)
