"""Shards of shards: the view of a whole tensor that a rank holds, also where rows are uneven."""

from pathlib import Path
from typing import Any

import torch

from assay.parallel.dtensor import shard_like
from support.ranks import Case, compute
from support.ranks.fake_group import of_each


def test_a_rank_fills_what_it_holds_of_uneven_rows_over_two_axes(tmp_path: Path) -> None:
    (found,) = compute([{"run": {"ranks": 1}, "answered_by": f"{__name__}:answer"}], tmp_path)
    assert found["ranks"] == [[]] * 8


def answer(case: Case) -> dict[str, Any]:
    return {"ranks": of_each(8, _wrong)}


def _wrong() -> list[str]:
    """What a rank holds that is not its part."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))
    return [f"{rows} rows, axis {axis}" for rows in (57, 56, 5) for axis in (0, 1) if not _holds(mesh, rows, axis)]


def _holds(mesh: Any, rows: int, axis: int) -> bool:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.arange(rows * rows, dtype=torch.float32).view(rows, rows)
    module = torch.nn.Linear(rows, rows, bias=False)
    pieces = distribute_tensor(whole, mesh["tensor"], [Shard(axis)], src_data_rank=None)
    module.register_parameter("weight", torch.nn.Parameter(pieces))
    fully_shard(module, mesh=mesh["data"])
    return torch.equal(shard_like(module.weight, whole), module.weight.to_local())
