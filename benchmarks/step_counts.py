"""What a step of a whole training asks of an absent H200: ours as `assay train` runs it, beside nanoGPT's `train.py`.

    python benchmarks/step_counts.py --python PYTHON [--beside FOLDER] [--few] [--out docs/measured/step_counts.md]

PYTHON is the Python of an environment with a CUDA build of torch and assay's requirements. FOLDER has nanoGPT's
`train.py`, `model.py` and `configurator.py`, which run unchanged; without it their rows are left out. Both train GPT-2
124M without biases on 12 sequences of 1,024 random tokens; `--few` is a tiny model without compiled rows. nanoGPT logs
every ten steps, as its configuration of GPT-2 says. It takes a quarter of an hour, mostly to compile.

Counts are medians over the steps of one timed block, without its first, which is not timed. Reads are those of the
whole block, because a block reads its figures a few times. The run has no evaluation in its block, and no values are
checked, because an absent GPU has none.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from assay import api
from assay.api import configure
from assay.cost import parameter_count

HERE = Path(__file__).parent
DEVICE = "h200"
BLOCK = 20
"""Steps of a timed block."""
_BEFORE, _BLOCKS = 4, 5
"""Steps before the first timed block: the first, the traced one and warm-up (`worker.blocks`). Blocks of a run."""
_STEPS = _BEFORE + _BLOCKS * BLOCK
_TAKEN = _BEFORE + 2 * BLOCK
"""Steps after which the run is ended: two blocks."""
KERNELS = "bf16_mixed+sdpa_attention:backend=flash+vocab_padding:multiple=64"
EAGER, INSIDE = f"{KERNELS}+fused_adamw", f"{KERNELS}+fused_adamw:clip=inside"
COUNTS = {
    "launches": "launches",
    "products": "products",
    "copies_on_device": "copies on the device",
    "copies_to_device": "copies to it",
    "pageable_copies": "pageable",
    "synchronizations": "waits",
    "reads": "reads",
    "graph_nodes": "nodes of graphs",
}
_SHAPE = {"n_layer": 12, "n_head": 12, "n_embd": 768, "context": 1024, "vocabulary": 50257, "batch": 12}
_TINY = {"n_layer": 2, "n_head": 2, "n_embd": 64, "context": 32, "vocabulary": 1001, "batch": 2}


@dataclass(frozen=True)
class Row:
    """One kind of training."""

    title: str
    stack: str | None = ""
    """Optimizations of ours; None: nanoGPT's."""
    settings: tuple[str, ...] = ()
    """Settings of ours, or arguments of nanoGPT's."""
    compiled: bool = False


ROWS = (
    Row("nanoGPT, not compiled", None, ("--compile=False",)),
    Row("nanoGPT", None, compiled=True),
    Row("no technique, figures read in each step", settings=("training.read_every=1",)),
    Row("no technique"),
    Row("16 bits, flash, padded vocabulary, fused update", EAGER),
    Row("… and cuDNN's attention for flash", EAGER.replace("flash", "cudnn")),
    Row("… and clipping inside the update", INSIDE),
    Row("… and captured graphs", f"{INSIDE}+cuda_graphs"),
    Row("… and compiled by blocks", f"{INSIDE}+compile", compiled=True),
    Row("… and compiled as one region", f"{INSIDE}+compile:regions=model", compiled=True),
    Row("… and batches ahead", f"{INSIDE}+compile:regions=model+pinned_prefetch", compiled=True),
    Row("compiled by blocks, clipping apart", f"{EAGER}+compile", compiled=True),
)
"""Kinds of training; rows that begin with an ellipsis change the fifth, and those after the seventh the seventh."""


@dataclass(frozen=True)
class Counted:
    """Counts of a timed block: medians of a step, and reads of all of it."""

    row: Row
    per_step: Mapping[str, int]
    reads: int
    steps: int
    lines: Mapping[str, int]
    """Reads of the whole process by line, with the operator."""
    requested_bytes: int

    @property
    def cells(self) -> list[str]:
        """Cells of its row of the table."""
        counts = [f"{self.per_step[name]:,}" for name in COUNTS]
        return [self.row.title, *counts, f"{self.reads} in {self.steps}", f"{self.requested_bytes / 1e9:.3f} GB"]


def counted(row: Row, python: str, beside: str, shape: Mapping[str, int]) -> Counted:
    """Run one kind of training on the absent GPU, and count its second block."""
    work = ("nanogpt", beside) if row.stack is None else ("ours", row.stack)
    given = [f"{name}={value}" for name, value in shape.items()]
    command = [python, __file__, *work, ",".join(given), *row.settings]
    answer = api.absent(DEVICE, command, steps=_TAKEN)
    seen = answer.observation
    if seen is None or seen.steps < _TAKEN:
        raise SystemExit(f"{row.title}: the training ended after {0 if seen is None else seen.steps} steps")
    block = seen.by_step[_TAKEN - BLOCK + 1 :]
    lines = {f"{one.short} ({one.operator})": one.count for one in seen.reads}
    medians = {name: median_low(step[name] for step in block) for name in COUNTS}
    return Counted(row, medians, sum(one["reads"] for one in block), len(block), lines, seen.devices[0].requested_bytes)


def chosen(few: bool, beside: str) -> Iterator[Row]:
    """Yield the rows that are asked for."""
    for row in ROWS:
        if not (few and row.compiled) and (beside or row.stack is not None):
            yield row


def table(found: Sequence[Counted]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| in a step | {' | '.join(COUNTS.values())} | reads of a block | requested at the peak |"
    yield f"| --- |{' ---: |' * (len(COUNTS) + 2)}"
    for one in found:
        yield f"| {' | '.join(one.cells)} |"


def lines_of(found: Sequence[Counted]) -> Iterator[str]:
    """Yield the lines that read in most steps of a training, as items of a list."""
    for one in found:
        often = [f"`{line}` {times} times" for line, times in one.lines.items() if times >= _TAKEN // BLOCK]
        yield f"- {one.row.title}: {', '.join(often) or 'none'}"


def page(found: Sequence[Counted]) -> str:
    """Return the page of the table."""
    weights = parameter_count(configure("gpt2-124m", ["model.bias=false", "model.vocab_size=50304"]).model)
    facts = {
        "table": "\n".join(table(found)),
        "lines": "\n".join(lines_of(found)),
        "parameters": f"{weights:,}",
        "apart": f"{2 * 4 * weights / 1e6:.0f}",
        "inside": f"{4 * weights / 1e6:.0f}",
    }
    return (HERE / "data" / "step_counts.md").read_text().format(**facts)


def train_ours(stack: str, shape: Mapping[str, int], settings: Sequence[str]) -> None:
    """Train as the command line does."""
    from assay.cli.main import main

    model = [f"model.{name}={shape[name]}" for name in ("n_layer", "n_head", "n_embd")]
    model += [f"model.context_length={shape['context']}", f"model.vocab_size={shape['vocabulary']}", "model.bias=false"]
    training = [f"training.steps={_STEPS}", f"training.batch_size={shape['batch']}", "training.check_values=false"]
    training += ["training.eval_interval=0", "training.eval_batches=1"]
    chosen = ["--with", stack] if stack else []
    data = ["data.tokenizer=byte", "device=cuda"]
    sys.argv = ["assay", "train", "gpt2-124m", *model, *training, *data, *settings, *chosen]
    with tempfile.TemporaryDirectory(prefix="assay-step-counts-") as home:
        os.environ["ASSAY_HOME"] = home
        main()


def train_nanogpts(folder: str, shape: Mapping[str, int], settings: Sequence[str]) -> None:
    """Run nanoGPT's `train.py` in a folder of its own, on random tokens."""
    import runpy

    with tempfile.TemporaryDirectory(prefix="assay-step-counts-") as here:
        prepare_nanogpts(Path(folder).absolute(), Path(here), shape["vocabulary"])
        os.chdir(here)
        sys.path.insert(0, here)
        model = [f"--{name}={shape[name]}" for name in ("n_layer", "n_head", "n_embd")]
        training = [f"--block_size={shape['context']}", f"--batch_size={shape['batch']}"]
        training += ["--dataset=random", "--gradient_accumulation_steps=1", "--log_interval=10", "--eval_iters=1"]
        sys.argv = ["train.py", *model, *training, "--bias=False", *settings]
        runpy.run_path("train.py", run_name="__main__")


def prepare_nanogpts(folder: Path, here: Path, vocabulary: int) -> None:
    """Put nanoGPT's three files and random tokens into a folder."""
    import numpy

    for name in ("train.py", "model.py", "configurator.py"):
        (here / name).symlink_to(folder / name)
    data = here / "data" / "random"
    data.mkdir(parents=True)
    for split in ("train", "val"):
        tokens = numpy.random.default_rng(0).integers(0, vocabulary, 2**17)
        tokens.astype(numpy.uint16).tofile(data / f"{split}.bin")


def main() -> int:
    """Print the table, and write it where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--beside", default="")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    found = []
    for row in chosen(given.few, given.beside):
        found.append(counted(row, given.python, given.beside, _TINY if given.few else _SHAPE))
        print(" · ".join(found[-1].cells), flush=True)
    if given.out is None:
        print("\n".join([*table(found), *lines_of(found)]))
    else:
        given.out.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] in (["ours"], ["nanogpt"]):
        kind, what, sizes, *rest = sys.argv[1:]
        shape = {name: int(value) for name, value in (one.split("=") for one in sizes.split(","))}
        (train_ours if kind == "ours" else train_nanogpts)(what, shape, rest)
    else:
        sys.exit(main())
