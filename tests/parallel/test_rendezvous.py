"""Processes that cannot meet say why, in one sentence and at once."""

import socket
from collections.abc import Iterator

import pytest
import torch

from assay.config.mesh import Mesh
from assay.errors import UsageError
from assay.parallel.process_rank import join_ranks
from assay.parallel.rendezvous import local_world, meeting


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
