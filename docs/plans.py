"""docs/plans.md: the output of `assay plan` for the large models in `examples/`."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from typer.testing import CliRunner

from assay import api
from assay.cli.main import app
from assay.estimator.plan import plan

ROOT = Path(__file__).parents[1]
GPT3 = "examples/gpt3-175b.yaml"
BRAIN = "examples/brain-100t.yaml"

_HEAD = """# Plans for absent machines

`assay plan` with `--nodes`, `--gpus-per-node` and `--gpu` plans a configuration with its techniques for machines that
nobody here has. The plan shows the place of each rank, the memory and traffic of a rank, and the time of a step.
The techniques are those of a training here, under the same names. Each states its change to a layout (`lay_out`), and a
technique that a plan cannot express is refused. Devices and links are from datasheets
(`src/assay/hardware/cluster.py`); the rest is arithmetic from papers.

**A plan leaves out** overlap, stragglers, contention, loading, the update, buffers and fragmentation. One rate stands
for all matrix products of a device. So steps of small models are planned up to 45 % too fast. Those of 146 billion
parameters and more are within 12 % of published figures ([how each number is made](numbers.md)).

**A plan assumes** the block of GPT-2, products in 16 bits, and Adam's state in 32 bits: 16 bytes per parameter. With
dropout a model saves the bytes that arXiv:2205.05198 counts; without, it saves a little less than planned. ZeRO divides
states among all ranks that share a weight, dp × cp, as published layouts do. A run here divides them among dp only.
"""

_GPT3 = """
## GPT-3, 175 billion parameters, on 1,024 A100s

Narayanan et al. (arXiv:2104.04473, section 5.1) assume 140 TFLOP/s per device, with recomputation counted, and so 34
days for 300 billion tokens. The plan takes an eighth less. Its rate suits steps of 530 billion parameters, and smaller
products reach less.
"""

_CHOICES = """
The same model and batch can be divided in other ways. A tensor group larger than a node (`degree=16`) waits for the
network. Smaller tensor groups send less, but the stages that replace them idle more. Two stages per rank shorten the
bubble. The zero-bubble schedule is missing, since it is refused with recomputation. Fully sharded data parallelism
gathers all weights for each micro-batch. A real step hides much of that behind its products; a plan hides nothing.

| | GB of the fullest rank | bubble | step | 300 billion tokens | MFU |
| --- | --- | --- | --- | --- | --- |
"""

_BRAIN = """
## A hundred trillion parameters

Could a model with as many parameters as a human brain has synapses be trained? With plain tensor and pipeline
parallelism it does not fit. Between the matrices every tensor rank saves whole tokens of 312 layers, which is more than
a device has. Adam's state is too large for each replica. With sequence parallelism, and with the state divided among
replicas, a step fits.
"""

_STAGES = """
The table shows the step under the stages of ZeRO (arXiv:1910.02054), with and without sequence parallelism. From the
second stage on a rank keeps only its share of the gradients, so each of 208 micro-batches sums them.

| | GB of the fullest rank | without sequence parallelism | step | training | MFU |
| --- | --- | --- | --- | --- | --- |
"""

_VERDICT = """
So a step fits, if barely. The obstacle is time: twenty tokens per parameter (arXiv:2203.15556) are two quadrillion
tokens. At 6 FLOPs for each token and parameter they keep a hundred thousand GPUs busy for centuries, even if nothing
else took time.
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
    """Return the page."""
    text = _HEAD + _GPT3 + _answer(GPT3, "--nodes", "128", "--gpus-per-node", "8", "--gpu", "a100")
    text += _CHOICES + "".join(_choices())
    text += _BRAIN + _answer(BRAIN, "--nodes", "13312", "--gpus-per-node", "8", "--gpu", "h200")
    return text + _STAGES + "".join(_stages()) + _VERDICT


def _answer(*words: str) -> str:
    os.chdir(ROOT)
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["plan", *words])
    if result.exit_code:
        raise RuntimeError(result.output)
    return f"\n```\n$ assay plan {' '.join(words)}\n\n{_aligned(result.output)}```\n"


def _aligned(output: str) -> str:
    """Align lines with tabs as columns, each table separately."""
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
    """Yield a row for each stage of ZeRO."""
    found = api.plan(str(ROOT / BRAIN), gpu="h200", nodes=13312)
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
    bare = api.configure(str(ROOT / GPT3)).model_copy(update={"optimizations": ()})
    for stack in _STACKS:
        found = api.plan(bare, optimizations=f"activation_checkpointing+{stack}", gpu="a100", nodes=128)
        planned = found.plan
        held = f"{planned.memory_bytes / 1e9:.0f}" + ("" if found.fits else ", too much")
        days = planned.training_seconds(300e9) / 86_400
        shown = stack.replace("+", " + ")
        yield (
            f"| `{shown}` | {held} | {planned.bubble:.1%} | {planned.step_seconds:.1f} s | {days:.1f} days "
            f"| {found.mfu:.1%} |\n"
        )
