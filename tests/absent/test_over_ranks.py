"""Scripts for torchrun on several absent GPUs, one rank after the other, against processes that do communicate."""

import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import api
from assay.absent.ranks_answer import RanksAnswer, ranks_of
from assay.report import view
from support.absent import PYTHON, needs_cuda_build, script

pytestmark = [needs_cuda_build, pytest.mark.absent]
SRC = Path(__file__).parents[2] / "src"
Run = Callable[..., RanksAnswer]


@pytest.fixture
def run(absent_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the text of a script as ranks on absent GPUs."""
    monkeypatch.setenv("ASSAY_HOME", str(absent_home))

    def ran(text: str, ranks: int, *arguments: str, **options: Any) -> RanksAnswer:
        return api.absent_ranks("h100", [PYTHON, script(tmp_path, text), *arguments], ranks, **options)

    return ran


def names(found: RanksAnswer, rank: int = 0) -> dict[str, int]:
    """Number of calls of a step by kind."""
    return dict(Counter(one.name for one in found.calls(rank)))


HEAD = """
import os, sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
"""
FSDP = """
import json, os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

kind, found = sys.argv[1], sys.argv[2]
dist.init_process_group("nccl" if kind == "cuda" else "gloo")
device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
if kind == "cuda":
    torch.cuda.set_device(device)

def nbytes(one):
    return one.nbytes if isinstance(one, torch.Tensor) else sum(map(nbytes, one)) if isinstance(one, list) else 0

class Listing(TorchDispatchMode):
    calls = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        if name.startswith("c10d::"):
            self.calls.append([name, max(map(nbytes, args))])
        return func(*args, **(kwargs or {}))

torch.manual_seed(0)
width = 48
blocks = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
          for _ in range(3)]
model = nn.Sequential(nn.Embedding(77, width), *blocks, nn.Linear(width, 77)).to(device)
mesh = init_device_mesh(kind, (dist.get_world_size(),))
for block in model[1:4]:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
listing = Listing()
for step in range(3):
    with listing if step == 2 and kind == "cpu" else torch.enable_grad():
        ids = torch.zeros(4, 16, dtype=torch.long, device=device)
        nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        gradients = sum(one.grad.to_local().nbytes for one in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
state = [one for each in optimizer.state.values() for one in each.values() if one.ndim]
answer = {
    "parameters": sum(one.to_local().nbytes for one in model.parameters()),
    "gradients": gradients,
    "states": sum(one.to_local().nbytes for one in state),
    "calls": listing.calls,
}
with open(f"{found}.{dist.get_rank()}", "w") as stream:
    json.dump(answer, stream)
dist.destroy_process_group()
"""


def test_fully_sharded_ranks_are_those_of_processes_that_communicate(run: Run, tmp_path: Path) -> None:
    found = run(FSDP, 2, "cuda", str(tmp_path / "absent"))
    program = script(tmp_path, FSDP, "real.py")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = {"MASTER_PORT": str(free.getsockname()[1])}
    plan = ranks_of(2, 2, None)
    processes = [
        subprocess.Popen(
            [PYTHON, program, "cpu", str(tmp_path / "real")], env={**os.environ, **plan.variables(rank), **port}
        )
        for rank in range(2)
    ]
    assert [one.wait() for one in processes] == [0, 0]
    for rank in range(2):
        here, there = (json.loads((tmp_path / f"{one}.{rank}").read_text()) for one in ("absent", "real"))
        assert [here[one] for one in ("parameters", "gradients", "states")] == [
            there[one] for one in ("parameters", "gradients", "states")
        ]
        kinds = {"c10d::_allgather_base_": "all_gather", "c10d::_reduce_scatter_base_": "reduce_scatter"}
        real = [(kinds.get(name, name), size) for name, size in there["calls"]]
        assert [(one.name, one.bytes) for one in found.calls(rank)] == real
        assert len(real) == 4 + 3 + 4  # gathered forward, all but the root again backward, and scattered


def test_data_parallel_ranks_sum_gradients_and_a_sharded_optimizer_sends_weights(run: Run) -> None:
    text = (
        HEAD
        + """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(4))).to(device)
model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
for step in range(4):
    model(torch.randn(8, 256, device=device)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    found = run(text, 4)
    assert found.status.value == "done"
    for rank in (0, 3):
        calls = found.calls(rank)
        weights = 4 * 256 * 256 * 4
        assert sum(one.bytes for one in calls if one.name == "all_reduce") == weights
        assert sum(one.bytes for one in calls if one.name == "broadcast") == weights


def test_tensor_parallel_ranks_sum_over_their_own_group(run: Run) -> None:
    text = (
        HEAD
        + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(8, 64, device=device)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    found = run(text, 64)
    assert found.ranks.per_host == 8
    for rank, group in ((0, (0, 1)), (63, (62, 63))):
        assert {one.ranks for one in found.calls(rank)} == {group}
        assert [(one.name, one.bytes) for one in found.calls(rank)] == [("all_reduce", 8 * 64 * 4)]


PIPELINE = (
    HEAD
    + """
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
model = nn.Linear(64, 64).to(device)
shape = (torch.empty(2, 64, device="meta"),)
stated = {"input_args": shape, "output_args": shape} if "stated" in sys.argv else {}
stage = PipelineStage(model, rank, world, device, **stated)
schedule = ScheduleGPipe(stage, 4, loss_fn=lambda output, target: (output - target).square().mean())
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(8, 64, device=device)
for step in range(3):
    schedule.step(*([batch] if rank == 0 else []), **({"target": batch} if rank == world - 1 else {}))
    optimizer.step()
    optimizer.zero_grad()
"""
)


def test_stages_of_a_pipeline_send_what_their_shapes_say(run: Run) -> None:
    found = run(PIPELINE, 3, "stated", run="all")
    assert [names(found, rank) for rank in range(3)] == [
        {"send": 4, "recv": 4},
        {"send": 8, "recv": 8},
        {"recv": 4, "send": 4},
    ]
    assert {one.bytes for rank in range(3) for one in found.calls(rank)} == {2 * 64 * 4}


def test_a_stage_that_waits_for_a_shape_ends_with_the_remedy(run: Run) -> None:
    found = run(PIPELINE, 3)
    text = "\n".join(one for one in view(found).blocks() if isinstance(one, str))
    assert "recv_object_list waits for an object of rank 1, which is absent" in text
    assert "input_args and output_args" in text


def test_contents_after_a_collective_are_the_ranks_own_or_not_known(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        HEAD
        + """
sent = torch.tensor([5.0], device=device)
dist.broadcast(sent, 0)
print("broadcast", sent.item())
gathered = torch.empty(world, device=device)
dist.all_gather_into_tensor(gathered, sent)
print("gathered", gathered.tolist())
dist.all_reduce(sent)
print("reduced", sent.item())
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
print("objects", objects)
host = dist.new_group(backend="gloo")
numbers = [torch.full((2,), 9.0) for _ in range(world)]
dist.all_gather(numbers, torch.tensor([1.0, 2.0]), group=host)
received = torch.full((1,), 9.0)
dist.recv(received, (rank + 1) % world, group=host)
print("host", numbers, received)
work = dist.all_reduce(sent, async_op=True)
print("complete", work.is_completed(), dist.get_backend(), dist.get_backend(host))
dist.monitored_barrier(group=host)
dist.destroy_process_group()
"""
    )
    assert run(text, 2, run="1").status.value == "done"
    lines = dict(line.split(" ", 1) for line in capfd.readouterr().err.splitlines() if " " in line)
    assert lines["broadcast"] == "5.0"
    assert lines["gathered"] == "[5.0, 5.0]"
    assert lines["reduced"] == "0.0"
    assert lines["objects"] == "[{'rank': 1}, {'rank': 1}]"
    assert lines["host"] == "[tensor([1., 2.]), tensor([1., 2.])] tensor([0.])"
    assert lines["complete"] == "True nccl gloo"


def test_torchrun_itself_is_told_how_ranks_are_run(run: Run, absent_home: Path, tmp_path: Path) -> None:
    program = script(tmp_path, HEAD + "dist.all_reduce(torch.ones(1, device=device))")
    found = api.absent("h100", [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "1", program])

    assert any("--ranks N, and without torchrun" in one for one in view(found).blocks() if isinstance(one, str))
