"""Ranks among each other: how they meet, the noise that each draws, and whether all have come."""

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from assay.config.mesh import Mesh
from assay.errors import UsageError
from assay.parallel import process_rank
from assay.parallel.process_rank import Ranks, join_ranks, local_world, meeting


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that another process listens at, where this one is rank 0 and should."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "2"}
        for name, value in place.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
        yield port


def test_a_port_in_use_is_said(taken: int) -> None:
    says = f"the port {taken} is in use on this host; set MASTER_PORT to a free one"
    with pytest.raises(UsageError, match=says):
        meeting()
    with pytest.raises(UsageError, match=says), join_ranks(Mesh(dp=2), torch.device("cpu")):
        pass


def test_a_launcher_that_names_no_place_is_said(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR")
    with pytest.raises(UsageError, match=r"could not meet at no host:\d+: .*MASTER_ADDR expected"):
        meeting()


def test_alone_at_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    met = meeting()
    met.say("word", "")
    assert (met.rank, met.world, met.world_here, local_world(), met.hear("word")) == (0, 1, 1, 1, "")


@pytest.mark.parametrize(
    ("mesh", "sequence_parts", "different"),
    [
        (Mesh(tp=2), 1, 1),
        (Mesh(tp=2), 2, 2),
        (Mesh(dp=2, tp=2), 1, 2),
        (Mesh(pp=2, cp=2), 1, 4),
        (Mesh(pp=2, dp=2, tp=2), 2, 8),
    ],
)
def test_ranks_draw_other_noise_where_they_hold_other_activations(
    mesh: Mesh, sequence_parts: int, different: int
) -> None:
    drawn = {Ranks(rank=rank, layout=mesh).noise(sequence_parts) for rank in range(mesh.size)}
    assert len(drawn) == different


def test_ranks_come_to_a_place_or_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    monkeypatch.setattr(process_rank, "_get_default_store", lambda: store)
    first, second = (Ranks(rank=rank, layout=Mesh(dp=2)) for rank in range(2))
    soon = timedelta(seconds=0.2)
    assert not first.all_come("unread step 3", soon)
    assert second.all_come("unread step 3", soon)
    assert first.all_come("unread step 3", soon)
    assert not first.all_come("unread step 4", soon)
    assert Ranks().all_come("unread step 3", soon)
