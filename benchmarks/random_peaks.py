"""Compare predicted with measured peaks of tensors, for random stacks and shapes.

    python benchmarks/random_peaks.py [--first N] [--count N] [--out docs/measured/random_peaks.md]

Each cell draws a model, a batch and a stack of optimizations from its number, and draws again if the stack is not
available. Its second step runs in this process, on one or two threads. Both peaks must be equal to the byte. Every
tenth model has experts; their errors may be 128 bytes, because the integers of a router are temporaries. Three kinds of
stacks are left out: compiled ones, whose ledger counts fused operations (`tests/cost/test_fusion.py`), stacks over
ranks, and torch's unfused attention with recomputation, where errors of the ledger reach 2 %.
"""

import argparse
import gc
import platform
import random
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.errors import UsageError
from assay.estimator import estimate
from assay.files import write_file
from assay.hardware import Machine, detect

if TYPE_CHECKING:
    from assay.step.program import Step

COUNT = 200
EXPERTS_BYTES = 128
"""Largest error of a cell with experts."""
_MOST_SKIPPED = 30
"""Updates that a loss scale may skip before the optimizer has its state."""
MACHINE = Machine(processor="any", cores=1, memory_bytes=2**40)

_PRECISION = ("", "", "", "bf16_mixed", "bf16_full", "fp16_mixed", "fp16_full")
_RECOMPUTED = ("activation_checkpointing", "activation_checkpointing:every=2", "selective_checkpointing")
_MEMORY = ("", "", *_RECOMPUTED, "selective_checkpointing:policy=matmuls")
_UNFUSED = "sdpa_attention:backend=math"
_ATTENTION = ("", "", "sdpa_attention", _UNFUSED)
_LOSS = ("", "", "chunked_cross_entropy", "chunked_cross_entropy:chunks=3")
_BATCH = ("", "", "gradient_accumulation:micro_batches=2")
_ADAM = ("", "", "", "fused_adamw", "foreach_adamw", "adam", "adamw_bf16_state")
_OPTIMIZER = (*_ADAM, "sgd", "lion", "adafactor", "muon")
_OTHERS = ("", "", "", "vocab_padding", "weight_tying", "optimizer_in_backward")


class Cell(NamedTuple):
    """One drawn run with both peaks."""

    number: int
    run: Run
    predicted: int
    measured: int

    @property
    def error(self) -> int:
        """Bytes."""
        return self.predicted - self.measured

    @property
    def within(self) -> bool:
        """Whether the error is small enough."""
        return abs(self.error) <= (0 if self.run.model.n_expert is None else EXPERTS_BYTES)


def kind(run: Run) -> str:
    """The group of a cell."""
    if run.model.n_expert is not None:
        return "experts"
    return "16 bits" if any("16" in one.name for one in run.optimizations) else "float32"


def drawn(number: int) -> Run:
    """A run that can be had, the same for the same number."""
    draw = random.Random(number)
    while True:
        run = _any(draw)
        try:
            run = _with_experts(run, draw) if number % 10 == 9 else run
            estimate(run, MACHINE)
        except UsageError:
            continue
        return run


def _any(draw: random.Random) -> Run:
    n_head = draw.choice((1, 2, 4, 6))
    model = ModelConfig(
        n_layer=draw.randint(1, 3),
        n_head=n_head,
        n_kv_head=draw.choice([count for count in (1, 2, 3, 6) if n_head % count == 0]),
        n_embd=n_head * draw.choice((4, 8, 16, 32)),
        context_length=draw.choice((8, 33, 64, 100, 339)),
        vocab_size=draw.choice((17, 65, 300, 1000)),
        bias=draw.random() < 0.5,
        dropout=draw.choice((0.0, 0.0, 0.1, 0.25)),
        norm=draw.choice(("layer", "rms")),
        norm_position=draw.choice(("pre", "pre", "post")),
        position=draw.choice(("learned", "rotary")),
        activation=draw.choice(("gelu", "gelu_tanh", "swiglu")),
        qk_norm=draw.random() < 0.3,
        tie_embeddings=draw.random() < 0.6,
    )
    memory, attention = draw.choice(_MEMORY), draw.choice(_ATTENTION)
    if memory and attention == _UNFUSED:
        attention = ""
    others = (draw.choice(choices) for choices in (_PRECISION, _LOSS, _BATCH, _OPTIMIZER, _OTHERS))
    specs = tuple(Spec.parse(one) for one in (memory, attention, *others) if one)
    training = TrainingConfig(batch_size=draw.choice((2, 4, 6, 10)))
    return Run(model=model, training=training, device="cpu", optimizations=specs)


def _with_experts(run: Run, draw: random.Random) -> Run:
    experts = draw.randint(1, 6)
    fields = {
        "n_expert": experts,
        "n_expert_active": draw.randint(1, experts),
        "router_loss": draw.choice((0.0, 0.01)),
        "expert_capacity": draw.choice((None, None, 0.5, 1.25)),
    }
    return run.model_copy(update={"model": ModelConfig.model_validate({**run.model.model_dump(), **fields})})


class _Tokens:
    """A corpus of random tokens."""

    def __init__(self, run: Run) -> None:
        import numpy as np

        ids = np.random.default_rng(0).integers(run.model.vocabulary, size=3 * run.model.context_length + 999)
        self.train = self.validation = _Shard(ids.astype(np.uint16))


class _Shard(NamedTuple):
    ids: object

    def __len__(self) -> int:
        return len(self.ids)  # type: ignore[arg-type]


def measured(run: Run, threads: int = 1) -> int:
    """Most bytes of tensors in the second step, and of those alive before it; other tensors of the process left out."""
    import torch

    from assay.instruments.memory.memory_pass import live_tensor_bytes
    from assay.instruments.memory.tensor_peak import tensor_peak
    from assay.training.loop import train_step
    from assay.training.probes import ActivationNorms, RouterStatistics

    device = torch.device("cpu")
    torch.set_num_threads(threads)
    forget_tables()
    before = live_tensor_bytes(device)
    step = built(run)
    probes = ActivationNorms(step)
    RouterStatistics(step)
    first = next(index for index in range(_MOST_SKIPPED) if train_step(step, index, probes) and step.optimizer.state)
    alive = live_tensor_bytes(device) - before
    return alive + tensor_peak(lambda: train_step(step, first + 1, probes) and None, "cpu").above_start_bytes


def built(run: Run) -> "Step":
    """The run's step on random tokens, optimizations applied."""
    import torch

    from assay.optimizations import optimizations_of
    from assay.training.build import baseline, build

    program = baseline(run, _Tokens(run), torch.device("cpu"))  # type: ignore[arg-type]
    for optimization in optimizations_of(run):
        program = optimization.apply(program, run)
    return build(program)


def forget_tables() -> None:
    """Masks, tables and a gradient that earlier cells left would be missing from what this one makes."""
    from assay.model import attention, balance
    from assay.optimizations.vocab_padding import padded_model as padding

    balance._factor.noted = None
    for table in (attention.future, padding._barred, attention._tables):
        table.cache_clear()
    gc.collect()


def cells(numbers: Sequence[int]) -> Iterator[Cell]:
    """Each drawn, predicted and measured."""
    for number in numbers:
        run = drawn(number)
        yield Cell(number, run, estimate(run, MACHINE).timeline.peak.nbytes, measured(run, 1 + number % 2))


def page(found: Sequence[Cell], command: str) -> str:
    """A table of errors by group, and the rows that are off most."""
    machine = detect()
    where = (
        f"{machine.processor}, {machine.instruction_set}; torch {version('torch')}, Python {platform.python_version()}"
    )
    groups = {name: [one for one in found if kind(one.run) == name] for name in ("float32", "16 bits", "experts")}
    lines = ["# Predicted peaks of random configurations", "", _text(__doc__ or ""), "", f"{where}: `{command}`.", ""]
    lines += ["| cells | count | equal to the byte | median error | largest error | largest share | beyond bounds |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [_group(name, group) for name, group in groups.items() if group]
    worst = sorted((one for one in found if one.error), key=lambda one: -abs(one.error) / one.measured)[:10]
    if not worst:
        return "\n".join(lines) + "\n"
    lines += ["", "The largest errors, as shares of the peak:", "", "| cell | stack | peak | error | share |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {one.number} | {'+'.join(map(str, one.run.optimizations)) or 'baseline'} | {one.measured} B "
        f"| {one.error:+d} B | {one.error / one.measured:+.4%} |"
        for one in worst
    ]
    return "\n".join(lines) + "\n"


def _text(documentation: str) -> str:
    return documentation.strip().rpartition("\n\n")[2]


def _group(name: str, group: Sequence[Cell]) -> str:
    errors = sorted(abs(one.error) for one in group)
    share = max(abs(one.error) / one.measured for one in group)
    exact, beyond = errors.count(0), sum(not one.within for one in group)
    return (
        f"| {name} | {len(group)} | {exact} | {errors[len(errors) // 2]} B | {errors[-1]} B | {share:.3%} | {beyond} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. The exit code is 1 where an error is beyond its bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--first", type=int, default=0, help="number of the first cell")
    parser.add_argument("--out", type=Path, help="Markdown file for the tables")
    options = parser.parse_args(arguments)
    found: list[Cell] = []
    for cell in cells(range(options.first, options.first + options.count)):
        found.append(cell)
        mark = "" if cell.within else "  beyond its bound"
        stack = "+".join(map(str, cell.run.optimizations)) or "baseline"
        print(f"{cell.number}  {cell.measured} B  {cell.error:+d} B  {stack}{mark}", file=sys.stderr, flush=True)
    text = page(found, f"python benchmarks/random_peaks.py --first {options.first} --count {options.count}")
    print(text)
    if options.out is not None:
        write_file(options.out, text.encode())
    return int(not all(cell.within for cell in found))


if __name__ == "__main__":
    sys.exit(main())
