"""The commands of `docs/absent-gpu.md`, with small shapes: they run, they fit, and the largest batch is found."""

import re
import subprocess
from pathlib import Path

import pytest

from assay import api
from assay.estimator.memory_fit import MemoryFit
from support.absent import PYTHON, needs_cuda_build, script

pytestmark = [needs_cuda_build, pytest.mark.absent, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "absent-gpu.md").read_text(encoding="utf-8")
SMALL = {
    "trainer_llama.py": ["--layers", "2", "--width", "128", "--length", "32"],
    "lightning_vit.py": ["--layers", "2", "--width", "64"],
}
"""Shapes of each example that take seconds."""
NANOGPT = """
import sys, torch
batch_size, dtype, compile = 12, "bfloat16", True
for one in sys.argv[1:]:
    key, value = one.removeprefix("--").split("=")
    globals()[key] = type(globals()[key])(eval(value))
model = torch.nn.Sequential(torch.nn.Embedding(65, 384), torch.nn.Linear(384, 65)).to("cuda")
scaler = torch.amp.GradScaler("cuda", enabled=dtype == "float16")
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
while True:
    x, y = (torch.randint(65, (batch_size, 2**18)).pin_memory().to("cuda", non_blocking=True) for _ in range(2))
    with torch.amp.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, 65), y.view(-1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
"""
"""A script of the form of nanoGPT's `train.py`: settings as `--key=value`, pinned batches, a scaler, no end."""


def test_every_example_is_in_the_page() -> None:
    named = set(re.findall(r"examples/absent/(\w+\.py)", PAGE))
    assert named == set(SMALL) == {one.name for one in (ROOT / "examples" / "absent").glob("*.py")}
    assert "--largest" in PAGE


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.usefixtures("home")
def test_an_example_fits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = name.partition("_")[0].replace("trainer", "transformers")
    if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{module} is not installed beside torch's CUDA build")
    monkeypatch.chdir(tmp_path)
    command = [PYTHON, str(ROOT / "examples" / "absent" / name), "--batch_size", "2", *SMALL[name]]
    found = api.absent("a100-40gb", command, steps=2)
    assert found.fit is (MemoryFit.CONDITIONAL if "vit" in name else MemoryFit.YES)  # a convolution makes the patches
    assert found.observation is not None
    assert found.observation.steps == 2


@pytest.mark.usefixtures("home")
def test_the_largest_batch_of_a_script_like_nanogpts_is_found(tmp_path: Path) -> None:
    command = [PYTHON, script(tmp_path, NANOGPT), "--batch_size={}", "--compile=False"]
    found = api.absent_largest("t4", command)
    assert found.best is not None
    after = [one for one in found.probes if one.number == found.best.number + 1]
    assert [one.fits for one in after] == [False]
