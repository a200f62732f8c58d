"""docs/plans.md: what `assay estimate --nodes` says of the large models in `examples/`, made by the command itself."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from typer.testing import CliRunner

from assay.api import configure, project
from assay.cli.main import app
from assay.estimate.plan import plan

ROOT = Path(__file__).parents[1]
GPT3 = "examples/gpt3-175b.yaml"
BRAIN = "examples/brain-100t.yaml"

_HEAD = """# Plans for machines that are not here

`assay estimate` with `--nodes`, `--gpus-per-node` and `--gpu` takes a configuration and its techniques, and answers for
machines that nobody here has: who is where, what a rank holds and sends, how long a step takes. The techniques are
those that train here, under the same names; each says what it changes in a layout (`lay_out`), and one that a plan
cannot express is refused. Devices and links are datasheets (`src/assay/hardware/cluster.py`), the rest is arithmetic
from papers.

**What a plan leaves out**: overlap, stragglers, contention, loading, the update, buffers and fragmentation. One rate
stands for all products of a device. So small models are planned up to 45 % too fast, and models of 146 billion
parameters and more within 12 % of what was published ([how each number is made](numbers.md)).

**What it assumes**: the block of GPT-2, products in 16 bits, Adam's state in 32: 16 bytes a parameter. A model with
dropout keeps what arXiv:2205.05198 counts; one without keeps a little less than planned.
ZeRO divides states among all ranks that share a weight, dp × cp, as published layouts do; a run here divides them
among dp.
"""

_GPT3 = """
## GPT-3, 175 billion parameters, on 1,024 A100s

Narayanan et al. (arXiv:2104.04473, section 5.1) reckon with 140 TFLOP/s a device, recomputation counted, and so with
34 days for 300 billion tokens. The plan takes an eighth less: its rate is one at which steps of 530 billion parameters
come out right, and smaller products reach less.
"""

_CHOICES = """
The same model and batch, cut in other ways. A tensor group that leaves its node (`degree=16`) waits for the network.
Smaller tensor groups send less, and the stages that replace them idle more. Two stages a rank shorten the bubble. The
zero-bubble order is not among them, since beside recomputation it is refused. Fully sharded data parallelism gathers
all weights for each micro-batch; a real step hides much of that behind its products, and a plan hides nothing.

| | GB of the fullest rank | bubble | step | 300 billion tokens | MFU |
| --- | --- | --- | --- | --- | --- |
"""

_BRAIN = """
## A hundred trillion parameters

As many parameters as a human brain has synapses: could it be trained? Plain tensor and pipeline parallelism do not hold
it: between the matrices every tensor rank keeps whole tokens, of 312 layers, which is more than a device has, and
Adam's state is too large for each replica. With sequence parallelism and the state divided among replicas a step fits.
"""

_STAGES = """
What the stages of ZeRO (arXiv:1910.02054) do to it, with and without sequence parallelism. From the second on a share
of the gradients is all that is kept, so each of 208 micro-batches sums them.

| | GB of the fullest rank | without sequence parallelism | step | training | MFU |
| --- | --- | --- | --- | --- | --- |
"""

_VERDICT = """
So a step fits, if barely, and what stands against such a training is time: twenty tokens a parameter (arXiv:2203.15556)
are two quadrillion, and 6 FLOPs for each token and parameter keep a hundred thousand GPUs busy for centuries, even if
nothing else took time.
"""

_STACKS = (
    "tensor_parallel:degree=8+pipeline_parallel:degree=8,micro_batches=96+data_parallel",
    "tensor_parallel:degree=8+pipeline_parallel:degree=16,micro_batches=192+data_parallel",
    "tensor_parallel:degree=4+pipeline_parallel:degree=16,micro_batches=96+data_parallel",
    "tensor_parallel:degree=16+pipeline_parallel:degree=4,micro_batches=96+data_parallel",
    "tensor_parallel:degree=8+pipeline_parallel:degree=8,micro_batches=96,schedule=interleaved+data_parallel",
    "tensor_parallel:degree=8+gradient_accumulation:micro_batches=12+fully_sharded",
)


def plans() -> str:
    """The page."""
    text = _HEAD + _GPT3 + _answer(GPT3, "--nodes", "128", "--gpus-per-node", "8", "--gpu", "a100")
    text += _CHOICES + "".join(_choices())
    text += _BRAIN + _answer(BRAIN, "--nodes", "13312", "--gpus-per-node", "8", "--gpu", "h200")
    return text + _STAGES + "".join(_stages()) + _VERDICT


def _answer(*words: str) -> str:
    os.chdir(ROOT)
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["estimate", *words])
    if result.exit_code:
        raise RuntimeError(result.output)
    return f"\n```\n$ assay estimate {' '.join(words)}\n\n{_aligned(result.output)}```\n"


def _aligned(output: str) -> str:
    """Lines with tabs as columns, each table for itself."""
    text, table = "", list[list[str]]()
    for line in [*output.splitlines(), ""]:
        fields = line.split("\t")
        if table and len(fields) != len(table[0]):
            widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
            for row in table:
                text += "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
            text, table = text + "\n", []
        if len(fields) > 1:
            table.append(fields)
        else:
            text += line + "\n"
    return text.rstrip("\n") + "\n"


def _stages() -> Iterator[str]:
    """A row for each way to divide the states."""
    found = project(str(ROOT / BRAIN), gpu="h200", nodes=13312)
    sheet, network = found.cluster.datasheet, found.cluster.network
    stages: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
    for stage in stages:
        layout = replace(found.plan.layout, zero=stage)
        whole = plan(found.run.model, replace(layout, sequence_parallel=False), network, sheet.products_flops)
        planned = plan(found.run.model, layout, network, sheet.products_flops)
        fits = planned.memory_bytes <= sheet.accelerator.memory_bytes
        years = planned.training_seconds(found.training_tokens) / 86_400 / 365
        name = f"ZeRO {stage}" if stage else "nothing divided"
        held = f"{planned.memory_bytes / 1e9:,.0f}{'' if fits else ', too much'}"
        yield (
            f"| {name} | {held} | {whole.memory_bytes / 1e9:,.0f}, too much | {planned.step_seconds:.0f} s "
            f"| {years:,.0f} years | {planned.mfu(sheet.peak_flops):.1%} |\n"
        )


def _choices() -> Iterator[str]:
    bare = configure(str(ROOT / GPT3)).model_copy(update={"optimizations": ()})
    for stack in _STACKS:
        found = project(bare, optimizations=f"activation_checkpointing+{stack}", gpu="a100", nodes=128)
        planned = found.plan
        held = f"{planned.memory_bytes / 1e9:.0f}" + ("" if found.fits else ", too much")
        days = planned.training_seconds(300e9) / 86_400
        shown = stack.replace("+", " + ")
        yield (
            f"| `{shown}` | {held} | {planned.bubble:.1%} | {planned.step_seconds:.1f} s | {days:.1f} days "
            f"| {found.mfu:.1%} |\n"
        )
