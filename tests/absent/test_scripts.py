"""Small scripts on an absent GPU, each in a process of its own with torch's CUDA build."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.estimator.memory_fit import MemoryFit
from assay.estimator.timing.step_time import StepTime
from assay.records.status import Exit
from support.absent import PYTHON, Ran, needs_cuda_build, script

pytestmark = [needs_cuda_build, pytest.mark.absent]
Run = Callable[..., Ran]

LOOP = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(32, 256, device="cuda")
for step in range(4):
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_plain_loop_has_the_peaks_that_torch_says(run: Run) -> None:
    told = "print(*(torch.cuda.memory_stats()[f'{k}_bytes.all.peak'] for k in ('requested', 'allocated', 'reserved')))"
    ran = run(LOOP + told)
    peak = ran.answer.peak
    assert peak is not None
    assert ran.printed.splitlines()[-1] == f"{peak.requested_bytes} {peak.allocated_bytes} {peak.reserved_bytes}"
    assert peak.given_out_bytes == peak.reserved_bytes
    assert ran.answer.fit is MemoryFit.YES
    assert ran.found.steps == 4
    assert ran.answer.per_step("products") == (5, 5, 5)
    assert ran.answer.per_step("synchronizations") == (0, 0, 0)
    assert ran.found.reads == ()


def test_a_step_has_a_predicted_time_and_the_same_peak(run: Run) -> None:
    plain, timed = run(LOOP), run(LOOP, times=True)
    assert plain.answer.peak == timed.answer.peak
    assert plain.found.by_step == timed.found.by_step
    assert timed.found.operators is not None
    names = [one.name for one in timed.found.operators.calls]
    assert (names.count("addmm"), names.count("mm"), names.count("gelu_backward")) == (2, 3, 1)
    assert {one.part for one in timed.found.operators.calls} == {"forward", "backward", "update"}
    assert isinstance(timed.answer.step_time, StepTime)
    # A GPU waits for the host in so small a step.
    assert 2e-4 < timed.answer.step_time.seconds < 5e-3


def test_compiled_code_has_no_predicted_time(run: Run) -> None:
    compiled = LOOP.replace("for step", "model = torch.compile(model, backend='aot_eager')\nfor step", 1)
    found = run(compiled, times=True).answer.step_time
    assert isinstance(found, str)
    assert "compiled or captured" in found


def test_a_peak_outlives_its_reset(run: Run) -> None:
    whole = run(LOOP).answer.peak
    reset = run(LOOP + "torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()").answer.peak
    assert whole is not None
    assert reset is not None
    assert whole == reset.model_copy(update={"given_back": 0})
    assert reset.given_back > 0


def test_a_script_ends_after_the_wanted_steps(run: Run) -> None:
    ran = run(LOOP.replace("range(4)", "range(10**9)") + "print('never')", steps=2)
    assert ran.found.steps == 2
    assert ran.found.ended.how == "steps"
    assert "never" not in ran.printed
    assert ran.answer.returncode == 0


def test_two_optimizers_count_a_step_once(run: Run) -> None:
    two = LOOP.replace("optimizer.step()", "optimizer.step(); other.step()").replace(
        "inputs =", "other = torch.optim.SGD(model.parameters(), lr=0.1)\ninputs ="
    )
    ran = run(two)
    assert (ran.found.steps, ran.found.optimizers) == (4, 2)


def test_a_line_that_reads_is_named(run: Run) -> None:
    ran = run(LOOP + "    print('loss', loss.item())\n")
    (read,) = ran.found.reads
    assert (Path(read.file).name, read.line, read.operator, read.kind, read.count) == (
        "train.py",
        12,
        "item",
        "value",
        4,
    )
    assert ran.answer.per_step("reads") == (1, 1, 1)
    assert ran.printed.count("loss 0.0") == 4


def test_mixed_precision_with_a_scaler_updates_and_finds_no_nan(run: Run) -> None:
    ran = run("""
import torch
from torch import nn
model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 64).cuda()), torch.zeros(8, dtype=torch.long).cuda())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.isnan(loss).any() and not torch.isinf(loss) and torch.isfinite(loss)
    optimizer.zero_grad()
print("states", len(optimizer.state))
""")
    assert ran.found.steps == 3
    assert ran.printed.splitlines()[-1] == "states 2"
    assert ran.answer.per_step("pageable_copies") == (2, 2, 2)


MASK = """
import torch
model = torch.nn.Linear(100, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(1000, 100, device="cuda")
for _ in range(3):
    rows = inputs[inputs[:, 0] > 0]
    print("rows", len(rows))
    model(rows).sum().backward()
    optimizer.step()
"""


def test_a_shape_that_hangs_on_a_mask_withdraws_the_peak(run: Run) -> None:
    ran = run(MASK)
    assert ran.answer.fit is MemoryFit.UNKNOWN
    (size,) = ran.answer.sizes
    assert (size.line, size.operator, size.count) == (7, "index_Tensor", 3)
    assert "rows 0" in ran.printed


def test_a_stated_value_gives_the_peak_back(run: Run) -> None:
    from assay.absent.launch import stated_read

    assert stated_read("train.py:7=500")
    ran = run(MASK, reads=["train.py:7=500"])
    assert ran.answer.fit is MemoryFit.YES
    assert "rows 500" in ran.printed


@pytest.mark.parametrize(
    "line",
    [
        "(x > 0).nonzero()",
        "x.masked_select(x > 0)",
        "torch.unique(x)",
        "torch.repeat_interleave(x, (x > 0).long())",
        "torch.bincount((x > 0).long())",
    ],
)
def test_other_sizes_are_told_from_values(run: Run, line: str) -> None:
    ran = run(f"import torch\nx = torch.randn(100, device='cuda')\ny = {line}\n")
    assert {one.line for one in ran.answer.sizes} == {3}
    assert ran.answer.fit is MemoryFit.UNKNOWN


def test_bytes_that_were_only_sent_come_back(run: Run) -> None:
    run_text = """
import torch
small, large = torch.tensor(7), torch.randn(3_000_000)
on, big = small.cuda(), large.cuda()
model = torch.nn.Linear(10, 10).cuda()
model(torch.ones(3, 10, device="cuda")).sum().backward()
assert on.item() == 7 and torch.equal(big.cpu(), large) and big[5].item() == large[5].item()
assert torch.zeros(1, device="cuda").item() == 0 and torch.ones(3, device="cuda").sum().item() == 0
assert bool((on > 9).any()), "a bool is true"
big += 1
assert big.cpu().abs().sum() == 0, "what a kernel wrote is a fill, and not what was sent"
for _ in range(50):
    del on
    on = torch.empty(1, dtype=torch.long, device="cuda").fill_(3)
    assert on.item() == 0, "a block that is used again holds nothing of its former life"
print("right")
"""
    assert run(run_text).printed.splitlines()[-1] == "right"


def test_whole_numbers_are_told_from_others_and_from_what_was_sent(run: Run) -> None:
    ran = run("""
import torch
x = torch.randn(10, device="cuda")
lengths = torch.tensor([3, 4], device="cuda")
lengths.tolist()
(x > 0).sum().item()
x.sum().item()
print(x)
(lengths + 1).tolist()
bool((x > 0).any())
range((x > 0).sum())
""")
    kinds = {one.line: one.kind for one in ran.found.reads if one.line != 8}
    assert kinds == {5: "sent", 6: "whole", 7: "value", 9: "whole", 10: "value", 11: "whole"}
    assert {one.kind for one in ran.found.reads if one.line == 8} <= {"value"}
    assert ran.answer.fit is MemoryFit.YES
    assert [one.line for one in ran.answer.whole] == [6, 9, 11]


def test_a_read_belongs_to_the_innermost_line(run: Run) -> None:
    """A mode sees every operator, and reads inside of it: the operator around it has not asked."""
    ran = run("""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
class Reads(TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, given=(), named=None):
        found = function(*given, **(named or {}))
        if function is torch.ops.aten.mm.default:
            found.sum().item()
        return found
x = torch.randn(10, 10, device="cuda")
with Reads():
    torch.nn.functional.linear(x, x)
""")
    assert [(one.line, one.operator, one.kind) for one in ran.found.reads] == [(8, "item", "value")]


def test_steps_of_any_optimizer_let_a_line_read_on(run: Run) -> None:
    ran = run("""
import torch
first, other = (torch.nn.Linear(2, 2).cuda() for _ in range(2))
kept = torch.optim.SGD(first.parameters(), lr=0.1)
kept.step()
optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
x = torch.randn(2, 2, device="cuda")
for _ in range(3):
    for _ in range(4000):
        x.sum().item()
    optimizer.step()
""")
    assert ran.found.ended.how == "finished"


def test_a_loop_that_waits_for_a_value_is_stopped_by_name(run: Run) -> None:
    ran = run("import torch\nx = torch.ones(4, device='cuda')\nwhile (x > 0).any():\n    x = x - 1\n")
    assert ran.found.ended.how == "endless"
    assert ran.found.ended.place.line == 3
    assert ran.answer.fit is MemoryFit.UNKNOWN


def test_memory_ends_where_the_device_s_ends(run: Run) -> None:
    ran = run("import torch\nkeep = []\nwhile True:\n    keep.append(torch.empty(2**30, device='cuda'))\n")
    assert ran.answer.fit is MemoryFit.NO
    assert ran.answer.exit_code is Exit.UNMET
    assert (ran.found.exhausted[0].line, ran.found.exhausted[0].wanted_bytes) == (4, 2**32)
    assert (
        "Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 2.99 GiB is free" in ran.printed
    )


def test_a_script_may_recover_from_exhausted_memory(run: Run) -> None:
    ran = run("""
import torch
try:
    torch.empty(2**36, device="cuda")
except torch.OutOfMemoryError:
    torch.empty(2**20, device="cuda")
""")
    assert ran.answer.fit is MemoryFit.YES
    assert len(ran.found.exhausted) == 1


@pytest.mark.parametrize("device", ["rtx4090", "h100"])
def test_expandable_segments_end_at_the_same_memory(run: Run, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    grown = run(LOOP + "keep = []\nwhile True:\n    keep.append(torch.empty(2**29, device='cuda'))\n", device=device)
    assert grown.answer.fit is MemoryFit.NO
    assert grown.found.steps == 4
    total = grown.found.devices[0].total_bytes
    assert total - 2**31 - 10**9 < grown.found.devices[0].given_out_bytes <= total


def test_devices_are_told_apart_and_an_unknown_one_is_invalid(run: Run) -> None:
    ran = run(
        """
import torch
here, there = torch.zeros(2**20, device="cuda:0"), torch.zeros(2**22, device="cuda:1")
assert torch.cuda.device_count() == 2 and here.to("cuda:1").device.index == 1
try:
    torch.zeros(1, device="cuda:2")
except Exception as error:
    print(str(error).splitlines()[0])
""",
        devices=2,
    )
    assert ran.printed.splitlines()[-1] == "CUDA error: invalid device ordinal"
    assert [one.device for one in ran.found.devices] == [0, 1]
    assert ran.found.devices[1].requested_bytes >= 2**24


def test_a_captured_graph_is_replayed_as_nodes(run: Run) -> None:
    ran = run(
        LOOP
        + """
del loss  # its graph belongs to the stream of the warm-up
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(inputs).square().mean().backward()
for _ in range(3):
    graph.replay()
    optimizer.step()
"""
    )
    nodes = [one["graph_nodes"] for one in ran.found.by_step]
    assert nodes[:4] == [0, 0, 0, 0]
    assert nodes[4] == nodes[6] > 10
    assert ran.found.by_step[6]["launches"] < ran.found.by_step[3]["launches"]


def test_a_read_inside_a_capture_fails_as_cuda_s_does(run: Run) -> None:
    ran = run(LOOP + "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    inputs.sum().item()\n")
    assert "operation not permitted when stream is capturing" in ran.printed
    assert ran.found.ended.how == "raised"


def test_pinned_memory_streams_and_events_work(run: Run) -> None:
    ran = run("""
import math, torch
host = torch.randn(1000).pin_memory()
there = host.to("cuda", non_blocking=True)
back = torch.empty(1000, pin_memory=True)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    back.copy_(there, non_blocking=True)
there.record_stream(side)
first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
first.record(); last.record(); last.synchronize()
assert torch.equal(back, host) and math.isnan(first.elapsed_time(last)) and first.query()
print("right")
""")
    assert ran.printed.splitlines()[-1] == "right"
    assert ran.found.counts["pageable_copies"] == 0
    assert ran.found.counts["copies_to_pinned"] == 1
    assert ran.found.counts["reads"] == 0


def test_snapshots_and_the_profiler_work(run: Run) -> None:
    ran = run("""
import torch
torch.cuda.memory._record_memory_history()
x = torch.randn(100, 100, device="cuda")
with torch.profiler.profile(profile_memory=True) as profile:
    (x @ x).sum().item()
assert sum(max(0, one.self_device_memory_usage) for one in profile.key_averages()) >= 40_000
assert torch.cuda.memory._snapshot()["segments"] and profile.key_averages()
assert sum(one.device_time_total for one in profile.key_averages()) == 0
print("right")
""")
    assert ran.printed.splitlines()[-1] == "right"


def test_workers_of_a_loader_are_not_observed(run: Run) -> None:
    ran = run("""
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 16))
model = torch.nn.Linear(16, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (rows,) in DataLoader(data, batch_size=16, num_workers=2, pin_memory=True):
    model(rows.cuda(non_blocking=True)).sum().backward()
    optimizer.step()
""")
    assert ran.found.steps == 4
    assert ran.answer.fit is MemoryFit.YES
    assert len(ran.answer.observations) == 1
    assert ran.answer.per_step("pageable_copies") == (0, 0, 0)


def test_a_fork_that_uses_the_device_is_observed(run: Run) -> None:
    ran = run("""
import multiprocessing, torch
def train():
    (torch.zeros(2**24, device="cuda") + 1).sum().item()
process = multiprocessing.get_context("fork").Process(target=train)
process.start()
process.join()
assert process.exitcode == 0
""")
    assert ran.answer.fit is MemoryFit.YES
    assert ran.found.devices[0].requested_bytes >= 2**27
    assert [one.line for one in ran.found.reads] == [4]


def test_scripted_compiled_and_mapped_functions_may_ask_for_nan(run: Run) -> None:
    ran = run("""
import torch
@torch.jit.script
def scripted(x):
    return torch.any(torch.isnan(x)) | torch.isinf(x).any()
x = torch.randn(3, 4, device="cuda")
scripted(x)
torch.vmap(lambda row: torch.isnan(row).any())(x)
assert not torch.isnan(x).any() and not torch.logical_or(torch.isnan(x), torch.isinf(x)).any()
print("right")
""")
    assert ran.printed.splitlines()[-1] == "right"


def test_an_allocator_that_the_script_chooses_is_refused(run: Run) -> None:
    ran = run("""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
import torch
torch.zeros(2**20, device="cuda")
""")
    assert ran.found.refused == "the allocator cudaMallocAsync"
    assert ran.answer.fit is MemoryFit.UNKNOWN


def test_a_missing_nccl_is_named_with_its_line(run: Run) -> None:
    ran = run("""
import os, torch, torch.distributed as dist
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(3, device="cuda"))
""")
    assert {(one.library, one.line) for one in ran.answer.refused} == {("NCCL", 5)}
    assert ran.answer.fit is MemoryFit.UNKNOWN


@pytest.mark.parametrize(
    ("line", "how", "code"),
    [
        ("raise ValueError('a fault of the script')", "raised", 1),
        ("sys.exit(3)", "finished", 3),
        ("os._exit(7)", "finished", 7),
        ("raise KeyboardInterrupt", "interrupted", -2),
        ("os.kill(os.getpid(), 15)", "signal", -15),
        ("os.kill(os.getpid(), 9)", "running", -9),
    ],
)
def test_findings_are_written_however_the_script_ends(run: Run, line: str, how: str, code: int) -> None:
    ran = run(f"import os, sys\n{LOOP}\n{line}\n")
    assert ran.found.ended.how == how
    assert ran.answer.returncode == code
    assert ran.answer.fit is MemoryFit.UNKNOWN
    if how != "running":
        assert ran.found.steps == 4
        assert ran.answer.peak is not None


def test_libraries_without_a_known_workspace_are_named(run: Run) -> None:
    ran = run("""
import torch
x = torch.randn(64, 64, device="cuda")
torch.linalg.eigh(x)
torch.fft.rfft(x)
torch.nn.Conv2d(1, 4, 3).cuda()(x[None, None])
""")
    assert {(one.library, one.line) for one in ran.answer.unknown} == {("cuSOLVER", 4), ("cuFFT", 5), ("cuDNN", 6)}
    assert ran.answer.fit is MemoryFit.CONDITIONAL


def test_recurrent_kernels_of_cudnn_end_in_a_sentence(run: Run) -> None:
    ran = run("import torch\ntorch.nn.LSTM(8, 8).cuda()\n")
    assert ran.answer.refused[0].library == "cuDNN's recurrent kernels"
    without = run(
        "import torch\ntorch.backends.cudnn.enabled = False\n"
        "torch.nn.LSTM(8, 8).cuda()(torch.ones(2, 3, 8, device='cuda'))\n"
    )
    assert without.answer.fit is MemoryFit.YES


def test_all_entries_of_cublas_count(run: Run) -> None:
    ran = run("""
import torch
x = torch.randn(8, 8, device="cuda")
x[0] @ x[0]
x @ x[0]
x @ x
x.double() @ x.double()
x.cfloat() @ x.cfloat()
torch.bmm(x[None].double(), x[None].double())
torch.baddbmm(x[None], x[None], x[None])
torch.addmm(x[0], x, x)
torch.outer(x[0], x[0])
""")
    assert ran.found.counts["products"] == 8  # an outer product is an element-wise one


@pytest.mark.slow
def test_compiled_code_runs(run: Run) -> None:
    ran = run(LOOP.replace("optimizer =", "model = torch.compile(model)\noptimizer ="))
    assert ran.found.steps == 4
    assert ran.answer.fit is MemoryFit.YES
    assert ran.answer.per_step("launches") is not None


def test_an_interrupt_from_a_terminal_still_gives_an_answer(absent_home: Path, tmp_path: Path) -> None:
    """The signal reaches command and script together; the answer says how far it came."""
    text = LOOP.replace("range(4)", "range(10**9)").replace("    loss.backward()", "    loss.backward(); print('on')")
    command = [sys.executable, "-m", "assay", "absent", "h100", "--", PYTHON, "-u", script(tmp_path, text)]
    variables = os.environ | {"ASSAY_HOME": str(absent_home)}
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    while process.stderr.readline() != "on\n":
        assert process.poll() is None
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The script was interrupted after" in out


FORKS = """
import os, torch
from assay.worker.processes import fork_server
fork_server._import_as_a_child()
assert not fork_server.uses_cuda()
if not os.fork():
    os._exit(0 if torch.zeros(1, device="cuda").is_cuda else 1)
assert os.wait()[1] == 0
torch.zeros(1, device="cuda")
assert fork_server.uses_cuda()
"""


def test_the_server_of_cells_can_be_forked_until_it_has_started_cuda(run: Run) -> None:
    ran = run(FORKS)
    assert ran.answer.returncode == 0, ran.printed
