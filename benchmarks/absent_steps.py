"""Steps whose peaks were measured on an H200, and how a peak is taken. It runs where torch sees a GPU, absent or not.

    python benchmarks/absent_steps.py ROWS.jsonl [FOLDER]...

Each row of the file is one training step, which runs in a forked process. For each, one line of JSON is printed. The
folders have nanoGPT's `model.py`, and `foreign_steps.py` with steps of models by others; rows without them are skipped.
"""

import contextlib
import gc
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.config import ResolvedRun

sys.path[:0] = [*sys.argv[2:], str(Path(__file__).parents[1] / "tests")]
# torch would otherwise start CUDA in this process to count its devices, and no fork of it could use them.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

import torch  # noqa: E402

from assay.platforms import fork_writer, read_fork  # noqa: E402

PEAKS = ("requested", "allocated", "reserved")
_WARM = 2
_HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def peaks_of(step: Callable[[int], object]) -> dict[str, int]:
    """Peaks of the third step, in bytes, with workspaces and cache as in a fresh process."""
    for index in range(_WARM):
        step(index)
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step(_WARM)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    return {f"{name}_peak": stats[f"{name}_bytes.all.peak"] for name in PEAKS}


def assays(row: dict[str, Any]) -> Callable[[int], object]:
    """A step of assay."""
    from assay.training.loop import train_step
    from support.steps import build_step

    run = run_of(row)
    torch.manual_seed(0)
    built = build_step(run)
    return lambda index: train_step(built, index)


def run_of(row: dict[str, Any]) -> "ResolvedRun":
    """The run of a row of assay: one of a preset and its changes, or a whole one."""
    from assay import api
    from assay.config import Run
    from assay.optimizations.stack import resolve_run

    if "run" in row:
        return resolve_run(Run.model_validate(row["run"]))
    stack = [row["stack"]] if row["stack"] else []
    return resolve_run(api.configure(row["preset"], [*row["over"], "device=cuda"], *stack))


def nanogpts(row: dict[str, Any]) -> Callable[[int], object]:
    """A step of nanoGPT's model, trained as its `train.py` does."""
    from model import GPT, GPTConfig

    shape, cell = row["nanogpt"], row["cell"]
    length = 512 if shape == "context" else 256
    config = GPTConfig(
        block_size=length,
        vocab_size=65,
        n_layer=12 if shape == "layers" else 6,
        n_head=6,
        n_embd=768 if shape == "embeddings" else 384,
        dropout=0.2,
        bias=False,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        model = GPT(config).cuda()
        adamw = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2) if cell == "sgd" else adamw
    scaler = torch.amp.GradScaler("cuda", enabled=cell == "float16")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    parts, rows = (4 if cell == "accumulation" else 1), (16 if cell == "batch16" else 64)

    def micro_batch() -> None:
        tokens = torch.zeros(rows // parts, length, dtype=torch.long, device="cuda")
        targets = torch.zeros_like(tokens)
        with torch.autocast("cuda", dtype=_HALF[cell]) if cell in _HALF else contextlib.nullcontext():
            _logits, loss = model(tokens, targets)  # train.py keeps the logits through the backward pass
            loss = loss / parts
        scaler.scale(loss).backward()

    def step(index: int) -> None:
        for _ in range(parts):
            micro_batch()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def others(row: dict[str, Any]) -> Callable[[int], object]:
    """A step of a model by others."""
    from foreign_steps import STEPS

    step: Callable[[int], object] = STEPS[row["foreign"]]()[2]
    return step


def found(row: dict[str, Any]) -> dict[str, Any]:
    """Peaks of a row, or why there are none."""
    torch.set_num_threads(1)
    if "nanogpt" in row and not any((Path(one) / "model.py").exists() for one in sys.argv[2:]):
        return {"skipped": "needs nanoGPT's model.py"}
    make = assays if "preset" in row or "run" in row else nanogpts if "nanogpt" in row else others
    try:
        return peaks_of(make(row))
    except ModuleNotFoundError as error:
        return {"skipped": f"needs {error.name}"}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def in_fork(row: dict[str, Any], take: Callable[[dict[str, Any]], dict[str, Any]] = found) -> dict[str, Any]:
    """Take the peaks of a row in a process of its own, which inherits what has been imported."""
    text, _ = read_fork(*fork_writer(lambda: (json.dumps(take(row)), 0)))
    answer: dict[str, Any] = json.loads(text) if text else {"failed": "the process died"}
    return answer


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        print(json.dumps(in_fork(json.loads(line))), flush=True)
