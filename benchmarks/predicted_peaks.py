"""Compare predicted with measured peaks of tensors: every optimization alone, and six stacks, on three shapes.

    python benchmarks/predicted_peaks.py [TREATMENT ...] [--shape 4/128/64 ...] [--out FILE] [--threads N]

Each cell is a run as `assay train` makes it, in a process of its own, of two steps and the memory pass; its record
holds both figures. A shape is layers / width / context. Without treatments it is the whole catalogue, at the defaults
and at every value of a field that names a few; what has something to do under other settings only has them
(`catalogue.SETTINGS`), and what cannot be had here, or has no arithmetic, is a row with the reason. Techniques that
divide a step over ranks are held against their measurements in `tests/parallel`.

A table of errors ends each shape. In the Markdown of `--out` (`docs/measured/peaks.md`) a row takes the place of the
same treatment's under the same shape as it comes, so a shape can be measured in parts, and one that is stopped keeps
its rows. The exit code is 1 where a run failed, or an error is beyond 5 % of an optimization alone or 8 % of a stack.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, get_args, get_origin

from assay import api
from assay.config import Home, Spec
from assay.errors import UsageError
from assay.files import write_file
from assay.optimizations import Unpredicted, catalogue, resolve
from assay.records.status import Status
from catalogue import GIVEN, SETTINGS, possible
from peaks_report import Row, line, renewed, table


@dataclass(frozen=True)
class Shape:
    """A model, and a batch that runs in minutes and in 8 GiB with any of the treatments."""

    n_layer: int
    n_embd: int
    context_length: int
    n_head: int
    vocabulary: int
    batch_size: int

    def __str__(self) -> str:
        return f"{self.n_layer}/{self.n_embd}/{self.context_length}"

    @property
    def overrides(self) -> tuple[str, ...]:
        model = {name: getattr(self, name) for name in ("n_layer", "n_embd", "context_length", "n_head")}
        return (
            *(f"model.{name}={value}" for name, value in model.items()),
            f"model.vocab_size={self.vocabulary}",
            f"training.batch_size={self.batch_size}",
        )


SHAPES = (
    Shape(4, 128, 64, n_head=4, vocabulary=65, batch_size=4),
    Shape(6, 384, 256, n_head=6, vocabulary=65, batch_size=4),
    Shape(12, 768, 256, n_head=12, vocabulary=50257, batch_size=2),
)
"""Vocabularies of a corpus by character, and GPT-2's."""

CHARACTERS = "\n" + "".join(map(chr, range(32, 96)))
"""As many as tiny Shakespeare has."""

BESIDES = ("activation_checkpointing:every=2", "gradient_accumulation:micro_batches=2", "sgd:nesterov=true")
"""Fields other than their defaults, of those that do not name their values."""

STACKS = (
    "sdpa_attention+bf16_mixed+activation_checkpointing",
    "sdpa_attention+chunked_cross_entropy+fused_adamw",
    "weight_tying+selective_checkpointing+gradient_accumulation:micro_batches=2+lion",
    "sdpa_attention+chunked_cross_entropy+activation_checkpointing:every=2+optimizer_in_backward",
    "bf16_full+sdpa_attention:backend=math+smaller_batch+foreach_adamw",
    "vocab_padding+fp16_mixed+activation_checkpointing+muon",
)

ALONE, TOGETHER = 0.05, 0.08
"""Largest errors."""

SETTLED = (
    *("demo", "data.tokenizer=char", "threads=null", "training.steps=2", "training.eval_interval=0"),
    "training.eval_batches=1",
)


def alone(names: Sequence[str] | None = None) -> list[str]:
    """Every optimization of one device, at its defaults and at each value of a field that names a few; and the rest."""
    kinds = {name: kind for name, kind in catalogue().items() if names is None or name in names}
    found = []
    for name, kind in kinds.items():
        fields = {field: info.annotation for field, info in kind.model_fields.items()}
        chosen = [(field, get_args(one)) for field, one in fields.items() if get_origin(one) is Literal]
        default = resolve(Spec(name=name))
        if default.axes():
            continue
        found.append(name)
        found += [f"{name}:{field}={v}" for field, values in chosen for v in values if v != getattr(default, field)]
        found += [one for one in BESIDES if one.partition(":")[0] == name]
    return found


def settings(stack: str) -> tuple[str, ...]:
    """What a stack has to find changed; a shape's own figures stand above it."""
    names = (one.partition(":")[0] for one in stack.split("+"))
    return tuple(dict.fromkeys(chain.from_iterable(SETTINGS.get(name, ()) for name in names)))


def configuration(shape: Shape, stack: str, text: Path) -> tuple[tuple[str, ...], str]:
    """Overrides of `demo`, and the treatment as it can be had."""
    given = GIVEN | {"streaming": f":path={text}"}
    treatment = "+".join(possible(one, given) for one in stack.split("+") if one)
    return (*SETTLED[1:], f"data.path={text}", *settings(stack), *shape.overrides), treatment


def measure(shape: Shape, stack: str, bound: float, text: Path, home: Home, threads: int | None) -> Row:
    """One cell. What is refused or not predicted is not run."""
    overrides, treatment = configuration(shape, stack, text)
    overrides += () if threads is None else (f"threads={threads}",)
    try:
        api.estimate(SETTLED[0], *overrides, optimizations=treatment or ())
    except Unpredicted as reason:
        return Row(stack, bound, reason=f"not predicted: {reason}")
    except UsageError as reason:
        return Row(stack, bound, reason=str(reason))
    result = api.train(SETTLED[0], *overrides, optimizations=treatment or (), home=home)
    shutil.rmtree(home.runs / result.run, ignore_errors=True)
    if result.status is not Status.DONE or result.predicted is None:
        return Row(stack, bound, reason=f"{result.status}: {result.reason}", failed=True)
    return Row(
        stack,
        bound,
        predicted_bytes=result.predicted.tensors_peak_bytes,
        measured_bytes=result.memory.tensors_peak_bytes,
        predicted_instant=result.predicted.tensors_peak_instant or "",
        measured_instant=result.memory.tensors_peak_instant or "",
    )


def document(folder: Path) -> Path:
    """A text of so many characters, drawn at random."""
    path = folder / "text.txt"
    path.write_text(CHARACTERS + "".join(random.Random(0).choices(CHARACTERS, k=40_000)))
    return path


def rows(shape: Shape, stacks: Sequence[tuple[str, float]], threads: int | None) -> Iterator[Row]:
    """The cells of a shape, one after the other."""
    with tempfile.TemporaryDirectory() as place:
        text, home = document(Path(place)), Home(Path(place) / "home")
        for stack, bound in stacks:
            row = measure(shape, stack, bound, text, home, threads)
            print(f"{shape}  {line(row)}", file=sys.stderr, flush=True)
            yield row


def write(out: Path, shape: Shape, found: Sequence[Row], command: str) -> None:
    """Put a shape's table into the page, as far as it has come."""
    page = out.read_text(encoding="utf-8") if out.exists() else ""
    title = f"{shape}, vocabulary {shape.vocabulary}, batch {shape.batch_size}"
    write_file(out, renewed(page, title, found, command).encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("treatments", nargs="*", metavar="TREATMENT", help="NAME, or several names joined by +")
    parser.add_argument("--shape", action="append", choices=[str(one) for one in SHAPES])
    parser.add_argument("--out", type=Path, help="Markdown file for the tables")
    parser.add_argument("--threads", type=int, help="default: torch's choice")
    options = parser.parse_args(arguments)
    every = [("", ALONE), *((one, ALONE) for one in alone()), *((one, TOGETHER) for one in STACKS)]
    asked = [(one, TOGETHER if "+" in one else ALONE) for one in options.treatments] or every
    shapes = [one for one in SHAPES if options.shape is None or str(one) in options.shape]
    command = " ".join(("python benchmarks/predicted_peaks.py", *(sys.argv[1:] if arguments is None else arguments)))
    kept = True
    for shape in shapes:
        found: list[Row] = []
        for row in rows(shape, asked, options.threads):
            found.append(row)
            if options.out is not None:
                write(options.out, shape, found, command)
        table(str(shape), found)
        kept = kept and all(row.within for row in found)
    return int(not kept)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.exit(str(error))
