"""The noise of dropout: equal where ranks hold the same activations, other where they hold other ones."""

from dataclasses import replace

import pytest
import torch

from assay.config import Run
from assay.config.mesh import Mesh
from assay.parallel.ranks import Ranks
from assay.runs.worker_build import seed_noise
from estimate.built import build_step
from optimizations.laboratory import run_with


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
    step = build_step(run_with())
    step = replace(step, program=replace(step.program, sequence_parts=sequence_parts))
    drawn = set()
    for rank in range(mesh.size):
        seed_noise(Run(), step, Ranks(rank=rank, layout=mesh))
        drawn.add(torch.rand(()).item())
    assert len(drawn) == different
