"""Steps that were measured on an H200, traced: equal to the byte. One process loads torch, and forks for each row."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.fake_library import shared_library

ROOT = Path(__file__).parents[2]
STACKS = {
    ("shakespeare-char", None): "workspaces of two threads",
    ("shakespeare-char", "activation_checkpointing"): "the tensor inside of softmax's backward",
    ("shakespeare-char", "bf16_mixed"): "autocast of CUDA",
    ("shakespeare-char", "sdpa_attention:backend=efficient"): "seed and offset on the host",
    ("shakespeare-char", "bf16_mixed+sdpa_attention:backend=flash"): "the flash kernel",
    ("shakespeare-char", "fp16_mixed"): "the loss scale",
    ("shakespeare-char", "fused_adamw"): "an optimizer without temporaries",
    ("shakespeare-char", "adafactor"): "a recipe of this package",
    ("shakespeare-char", "optimizer_in_backward"): "updates within backward",
    ("gpt2-124m", "sdpa_attention:backend=efficient"): "cuBLASLt's workspace, tables of a longer context",
    ("gpt2-124m", "bf16_mixed+sdpa_attention:backend=flash"): "16-bit log-probabilities",
    ("llama-3.2-1b", "bf16_mixed+sdpa_attention:backend=flash"): "RMSNorm as one kernel, grouped queries",
}
"""What each row shows beside the others, by preset and stack."""


FEW = 1
"""Rows of the fast test; the slow one has all."""


@pytest.mark.parametrize("count", [FEW, pytest.param(len(STACKS), marks=pytest.mark.slow)])
def test_measured_steps_are_traced_to_the_byte(
    count: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared_library(tmp_path_factory, tmp_path / "home")
    lines = (ROOT / "benchmarks" / "data" / "h200_peaks.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = list(STACKS)[:count]
    rows = [row for row in map(json.loads, lines) if (row.get("preset"), row.get("stack")) in chosen]
    assert len(rows) == count
    listed = tmp_path / "rows.jsonl"
    listed.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    variables = dict(os.environ) | {"PYTHONPATH": str(ROOT / "src"), "ASSAY_HOME": str(tmp_path / "home")}
    command = [sys.executable, str(ROOT / "benchmarks" / "trace_steps.py"), str(listed)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one.get("requested_peak", one) for one in found] == [row["requested_peak"] for row in rows]
