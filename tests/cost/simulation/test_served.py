"""What an allocator takes for a request: malloc's own mappings, and a step whose requests are added up."""

import subprocess
import sys
from dataclasses import replace

import pytest

from assay.cost import Cost, replay
from assay.cost.simulation.caching_allocator import block_bytes
from assay.cost.simulation.served import mapped_bytes, most_bytes
from assay.estimator import estimate
from assay.hardware import Machine
from support.runs import run_with, specs_of

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
SIZES = (65536, 65537, 69000, 100_000, 131_072, 262_144 - 136, 262_144 - 135, 3_000_000)
_ASKED = """
import ctypes, sys
from pathlib import Path
libc = ctypes.CDLL(None)
libc.mallopt(-3, 65536)
libc.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
def held():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024
COUNT = 64
for size in map(int, sys.argv[1:]):
    pointers = [ctypes.c_void_p() for _ in range(COUNT)]
    before = held()
    for one in pointers:
        assert libc.posix_memalign(ctypes.byref(one), 64, size) == 0
    print((held() - before) // COUNT)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's counter is Linux's")
def test_a_large_request_has_the_pages_that_malloc_maps_for_it() -> None:
    said = subprocess.run([sys.executable, "-c", _ASKED, *map(str, SIZES)], capture_output=True, text=True, check=True)
    for size, taken in zip(SIZES, map(int, said.stdout.split()), strict=True):
        assert mapped_bytes(size) - 4096 <= taken <= mapped_bytes(size), size


def cost(*stack: str) -> Cost:
    return estimate(run_with(*specs_of(stack)), MACHINE).cost


@pytest.mark.parametrize("stack", [(), ("activation_checkpointing", "bf16_mixed"), ("gradient_accumulation", "lion")])
def test_requests_that_are_not_enlarged_need_the_peak_of_tensors(stack: tuple[str, ...]) -> None:
    plain = cost(*stack)
    need = most_bytes(plain, {}, on_gpu=True)
    peak = replay(plain).peak.nbytes
    assert peak <= need <= peak + 512 * replay(plain).allocations + 512 * len(plain.held)


def test_scratch_counts_only_where_it_is_taken() -> None:
    plain = cost()
    peak = replay(plain).peak
    need = most_bytes(plain, {}, on_gpu=True)
    at_peak, elsewhere = ({(peak.operation, peak.site): 10**6}, {("aten.add", "embedding"): 1000})
    assert most_bytes(plain, at_peak, on_gpu=True) == need + 10**6
    assert most_bytes(plain, elsewhere, on_gpu=True) == need
    assert most_bytes(plain, {("aten.add", "embedding"): 10**9}, on_gpu=True) > 10**9


def test_held_bytes_count_with_their_rounding() -> None:
    plain = cost("sgd")
    more = replace(plain, buffers=tuple(replace(one, name=f"{one.name}.more") for one in plain.pieces.values()))
    assert most_bytes(more, {}, on_gpu=True) - most_bytes(plain, {}, on_gpu=True) == sum(
        block_bytes(one.nbytes) for one in plain.pieces.values()
    )
