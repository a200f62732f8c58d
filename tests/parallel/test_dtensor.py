"""Shards of shards: the view of a whole tensor that a rank holds, also where rows are uneven."""

import subprocess
import sys

_RANKS = """
import os, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from assay.parallel.dtensor import shard_like

def held(mesh, rows, axis):
    whole = torch.arange(rows * rows, dtype=torch.float32).view(rows, rows)
    module = torch.nn.Linear(rows, rows, bias=False)
    pieces = distribute_tensor(whole, mesh["tensor"], [Shard(axis)], src_data_rank=None)
    module.register_parameter("weight", torch.nn.Parameter(pieces))
    fully_shard(module, mesh=mesh["data"])
    return shard_like(module.weight, whole), module.weight.to_local()

for rank in range(8):  # in forks, because torch keeps what it knows of a mesh
    if os.fork() == 0:
        dist.init_process_group("fake", rank=rank, world_size=8, store=FakeStore())
        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))
        for rows in (57, 56, 5):
            for axis in (0, 1):
                found, local = held(mesh, rows, axis)
                if not torch.equal(found, local):
                    print(rank, rows, axis, found.shape, local.shape, file=sys.stderr)
        os._exit(0)
    os.wait()
"""


def test_a_rank_fills_what_it_holds_of_uneven_rows_over_two_axes() -> None:
    done = subprocess.run([sys.executable, "-c", _RANKS], capture_output=True, text=True, check=False)
    wrong = [line for line in done.stderr.splitlines() if line[:1].isdigit()]
    assert done.returncode == 0, done.stderr
    assert not wrong
