"""The noise of dropout: equal where ranks hold the same activations, other where they hold other ones."""

import pytest

from assay.config.mesh import Mesh
from assay.parallel.ranks import Ranks


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
