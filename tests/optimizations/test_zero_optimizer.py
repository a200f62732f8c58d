"""Pieces of weights that an optimizer sees: none twice, none left out, along the axis that nothing else divides."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from assay.config import ModelConfig, Run
from assay.config.mesh import Mesh
from assay.cost import Cost, Tensor, baseline, parameters, replay
from assay.cost.kernels import CUDA
from assay.cost.rewrites.replicated_step import replica_ledger
from assay.optimizations.tensor_parallel.ledger import split_matrices
from assay.optimizations.zero_optimizer import divide_update

MODEL = ModelConfig(n_layer=1, n_head=2, n_embd=6, context_length=8, vocab_size=65)
WHOLE = parameters(MODEL)


def replica(mesh: Mesh, rank: int) -> Cost:
    alone = replace(baseline(Run(model=MODEL)), mesh=mesh, rank=rank)
    return replica_ledger(split_matrices(alone) if mesh.tp > 1 else alone)


def elements(pieces: Mapping[str, Tensor]) -> int:
    return sum(one.elements for one in pieces.values())


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_pieces_of_all_ranks_are_the_weights(ranks: int) -> None:
    mesh = Mesh(dp=ranks)
    every = [divide_update(replica(mesh, rank), WHOLE).updated for rank in range(ranks)]
    for name, weight in WHOLE.items():
        assert sum(pieces[name].elements for pieces in every) == weight.elements


def test_weights_and_gradients_stay_whole_and_state_is_of_pieces() -> None:
    before = replica(Mesh(dp=2), 0)
    after = divide_update(before, WHOLE)
    assert after.parameter_bytes == before.parameter_bytes
    counts = 4 * len(WHOLE)
    assert after.optimizer_state_bytes - counts == 2 * 4 * elements(after.updated)
    assert elements(after.updated) < 0.51 * elements(before.updated)


def test_weights_that_tensor_parallelism_divides_by_rows_are_divided_by_columns() -> None:
    before = replica(Mesh(dp=2, tp=2), 0)
    after = divide_update(before, WHOLE)
    name = "blocks.0.mlp.up"
    assert after.updated[f"{name}.weight"].shape == (12, 3)
    assert after.updated[f"{name}.bias"].shape == before.pieces[f"{name}.bias"].shape == (12,)
    assert after.updated["blocks.0.mlp.down.weight"].shape == (3, 12)


def test_the_update_makes_less_and_then_gathers_one_weight_at_a_time() -> None:
    before = replica(Mesh(dp=2, tp=2), 0)
    after = divide_update(before, WHOLE)
    largest = max(before.update, key=lambda one: one.nbytes)
    assert max(one.nbytes for one in after.update if one.operation == "AdamW") <= largest.nbytes / 2
    gathered = {one.site: one.nbytes for one in after.update if one.operation == "all_gather"}
    # gloo copies all; on a GPU only columns are copied, since rows arrive as they lie.
    on_gpu = {one.site: one.nbytes for one in divide_update(replace(before, kernels=CUDA), WHOLE).optimizer.after}
    up, down = "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight"
    assert gathered[up] == on_gpu[up] == 2 * before.pieces[up].nbytes
    assert gathered[down] == 2 * on_gpu[down] == 2 * before.pieces[down].nbytes
    assert "blocks.0.mlp.up.bias" not in gathered
    assert replay(after).peak.nbytes < replay(before).peak.nbytes
