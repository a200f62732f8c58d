"""Ranks among each other: the noise that each draws, and whether all have come where one stands."""

from datetime import timedelta

import pytest
import torch.distributed as dist

from assay.config.mesh import Mesh
from assay.parallel import process_rank
from assay.parallel.process_rank import Ranks


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
