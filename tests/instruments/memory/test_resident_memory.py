"""Memory of a process, read in processes of their own: file pages, a fat parent, and what malloc keeps."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.instruments.memory import resident_memory

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel keeps no such mark")
pytestmark = linux

MB = 10**6
ANSWER = """
import json
from dataclasses import asdict
from assay.instruments.memory import resident_memory as process

def answer():
    return asdict(process.read()) | {"held_peak_bytes": process.read().held_peak_bytes}
"""


def run(code: str, *arguments: str) -> Any:
    command = [sys.executable, "-c", ANSWER + code, *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_mark_is_reset() -> None:
    before, spike, after = run("""
before = answer()
x = b"x" * 50_000_000
del x
spike = answer()
process.reset_peak()
print(json.dumps([before, spike, answer()]))
""")
    assert spike["peak_bytes"] >= before["peak_bytes"] + 45 * MB
    assert after["peak_bytes"] <= before["peak_bytes"] + 5 * MB


def test_pages_of_a_file_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    with path.open("wb") as stream:
        stream.truncate(100 * MB)
    before, after = run(
        """
import mmap, sys
before = answer()
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
for page in range(0, 100_000_000, 4096):
    mapped[page]
print(json.dumps([before, answer()]))
""",
        str(path),
    )
    assert after["file_bytes"] >= before["file_bytes"] + 95 * MB
    assert after["peak_bytes"] >= before["peak_bytes"] + 45 * MB
    assert abs(after["held_peak_bytes"] - before["held_peak_bytes"]) < MB


def test_a_fat_parent_does_not_show_in_its_child() -> None:
    parent = """
import subprocess, sys
ballast = b"x" * int(sys.argv[1])
child = [sys.executable, "-c", sys.argv[2]]
sys.stdout.write(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
"""
    child = ANSWER + "x = b'x' * 20_000_000\nprint(json.dumps(answer()))"
    thin, fat = run(parent, "1", child), run(parent, str(300 * MB), child)
    for figure in ("peak_bytes", "anonymous_bytes", "held_peak_bytes"):
        assert abs(thin[figure] - fat[figure]) < MB
    assert thin["held_peak_bytes"] > 20 * MB


def test_freed_memory_goes_back_or_stays() -> None:
    fragments = """
blocks = [b"x" * 100_000 for _ in range(500)]
pin = [bytes(2000) for _ in range(100)]
del blocks
"""
    returned, kept = (
        run(
            f"assert process.{mode}()\nbefore = answer(){fragments}print(json.dumps([before, answer()]))",
        )
        for mode in ("return_freed_memory", "keep_freed_memory")
    )
    assert returned[1]["held_peak_bytes"] - returned[0]["anonymous_bytes"] > 45 * MB
    assert returned[1]["anonymous_bytes"] - returned[0]["anonymous_bytes"] < 5 * MB
    assert kept[1]["anonymous_bytes"] - kept[0]["anonymous_bytes"] > 45 * MB


def test_kept_blocks_can_be_given_back() -> None:
    before, kept, trimmed = run("""
assert process.keep_freed_memory()
before = answer()
blocks = [b"x" * 100_000 for _ in range(500)]
pin = [bytes(2000) for _ in range(100)]
del blocks
kept = answer()
assert process.trim()
print(json.dumps([before, kept, answer()]))
""")
    assert kept["anonymous_bytes"] - before["anonymous_bytes"] > 45 * MB
    assert trimmed["anonymous_bytes"] - before["anonymous_bytes"] < 5 * MB


def test_no_kernel_no_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resident_memory, "_STATUS", tmp_path / "missing")
    monkeypatch.setattr(resident_memory, "_CLEAR", tmp_path)
    assert resident_memory.read() is None
    assert resident_memory.reset_peak() is False


def test_held_is_never_below_what_is_held_now() -> None:
    assert resident_memory.ProcessMemory(peak_bytes=200, anonymous_bytes=50, file_bytes=170).held_peak_bytes == 50
    assert resident_memory.ProcessMemory(peak_bytes=200, anonymous_bytes=50, file_bytes=20).held_peak_bytes == 180


@pytest.mark.slow
def test_peaks_of_equal_runs_agree_within_one_percent() -> None:
    training = """
process.return_freed_memory()
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
def step():
    model(torch.randn(4096, 512)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
step()
peaks = []
for _ in range(3):
    process.reset_peak()
    step()
    peaks.append(answer()["held_peak_bytes"])
print(json.dumps(peaks))
"""
    peaks = [peak for _ in range(3) for peak in run(training)]
    assert max(peaks) <= 1.01 * min(peaks)
