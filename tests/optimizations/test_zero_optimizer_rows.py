"""Which part of a weight each rank updates, on three ranks, of weights whose rows three does not divide."""

import json
import subprocess
import sys
from collections import defaultdict

_SHAPES = ((61, 5), (57, 7), (4, 9), (2, 3), (1, 1))
_RANKS = f"""
import json, os
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from assay.optimizations.zero_optimizer.step import _part, _piece
from assay.parallel.dtensor import shard_like

def look(shape, mesh, place):
    whole = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
    weight = torch.nn.Parameter(distribute_tensor(whole, mesh, [Replicate(), place], src_data_rank=None))
    piece = _piece(weight)
    held, gradient = piece.to_local(), _part(weight.detach() * 2, piece.placements).to_local()
    right = torch.equal(held, shard_like(piece, whole)) and torch.equal(gradient, 2 * held)
    shared = held.untyped_storage().data_ptr() == weight.to_local().untyped_storage().data_ptr()
    print(json.dumps([f"{{shape}} {{place}}", right, shared or not held.numel(), held.flatten().tolist()]), flush=True)

for tensor, places in ((1, (Replicate(),)), (2, (Shard(0), Shard(1)))):
    for rank in range(3 * tensor):  # in forks, because torch keeps what it knows of a mesh
        if os.fork() == 0:
            dist.init_process_group("fake", rank=rank, world_size=3 * tensor, store=FakeStore())
            mesh = init_device_mesh("cpu", (3, tensor), mesh_dim_names=("dp", "tp"))
            for shape in {_SHAPES}:
                for place in places:
                    look(shape, mesh, place)
            os._exit(0)
        os.wait()
"""


def test_three_ranks_update_every_element_once() -> None:
    done = subprocess.run([sys.executable, "-c", _RANKS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ranks) == (3 + 2 * 6) * len(_SHAPES), done.stderr
    assert [name for name, right, _, _ in ranks if not right] == [], "a rank has other rows than torch gives it"
    assert [name for name, _, shared, _ in ranks if not shared] == [], "an update of the piece must change the weight"
    updated: defaultdict[str, list[float]] = defaultdict(list)
    for name, _, _, held in ranks:
        updated[name] += held
    assert len(updated) == 3 * len(_SHAPES)
    for name, elements in updated.items():
        assert sorted(elements) == [float(one) for one in range(len(elements))], name
    assert {len(elements) for elements in updated.values()} == {rows * columns for rows, columns in _SHAPES}
