"""Which part of a weight each rank updates, on three ranks, of weights whose rows three does not divide."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from assay.optimizations.zero_optimizer.step import _part, _piece
from assay.parallel.dtensor import shard_like
from support.ranks import Case, compute
from support.ranks.fake_group import of_each

_SHAPES = ((61, 5), (57, 7), (4, 9), (2, 3), (1, 1))


def test_three_ranks_update_every_element_once(tmp_path: Path) -> None:
    (found,) = compute([{"run": {"ranks": 1}, "answered_by": f"{__name__}:answer"}], tmp_path)
    seen = [one for ranks in found["ranks"] for one in ranks]
    assert len(seen) == (3 + 2 * 6) * len(_SHAPES)
    assert [name for name, right, _, _ in seen if not right] == [], "a rank has other rows than torch gives it"
    assert [name for name, _, shared, _ in seen if not shared] == [], "an update of the piece must change the weight"
    updated: defaultdict[str, list[float]] = defaultdict(list)
    for name, _, _, held in seen:
        updated[name] += held
    assert len(updated) == 3 * len(_SHAPES)
    for name, elements in updated.items():
        assert sorted(elements) == [float(one) for one in range(len(elements))], name
    assert {len(elements) for elements in updated.values()} == {rows * columns for rows, columns in _SHAPES}


def answer(case: Case) -> dict[str, Any]:
    return {"ranks": [one for tensor in (1, 2) for one in of_each(3 * tensor, lambda tensor=tensor: _looked(tensor))]}


def _looked(tensor: int) -> list[tuple[str, bool, bool, list[float]]]:
    """Of each weight: its name, whether a rank has the right rows, whether it shares them, and the rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    mesh = init_device_mesh("cpu", (3, tensor), mesh_dim_names=("dp", "tp"))
    places = (Replicate(),) if tensor == 1 else (Shard(0), Shard(1))
    return [_look(shape, mesh, place) for shape in _SHAPES for place in places]


def _look(shape: tuple[int, int], mesh: Any, place: Any) -> tuple[str, bool, bool, list[float]]:
    from torch.distributed.tensor import Replicate, distribute_tensor

    whole = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
    weight = torch.nn.Parameter(distribute_tensor(whole, mesh, [Replicate(), place], src_data_rank=None))
    piece = _piece(weight)
    held, gradient = piece.to_local(), _part(weight.detach() * 2, piece.placements).to_local()
    right = torch.equal(held, shard_like(piece, whole)) and torch.equal(gradient, 2 * held)
    shared = held.untyped_storage().data_ptr() == weight.to_local().untyped_storage().data_ptr()
    return f"{shape} {place}", right, shared or not held.numel(), held.flatten().tolist()
