"""Measure the catalogue: every optimization at its defaults against the reference configuration's baseline.

    python benchmarks/catalogue.py [NAME ...] [--source demo] [--out FILE] [--blocks 5] [--seeds 3] [--group 4]
                                   [--minutes M] [--anew]

Those of one group are compared as `assay compare` does: several processes a row, in interleaved blocks beside a
baseline that runs twice. What this machine cannot do, or a run refuses, is written down with the reason. An entry
replaces the earlier one of the same optimization on the same device, and the file is written after every group.

It can be stopped at any time and continued. Entries of this device and this torch that are of enough processes stand,
unless ``--anew`` is given. ``--minutes`` begins no further group after that time. Without ``--out`` the file is the one
that ships with the package; `make docs` then writes the cards anew.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from assay import api
from assay.analysis.catalogue import Catalogue, CatalogueEntry, device_of, entry_of, read, shipped_path
from assay.config import Spec
from assay.errors import UsageError
from assay.hardware import Machine, detect
from assay.optimizations import Unavailable, Unpredicted, catalogue, resolve
from assay.records.status import Status
from assay.studies.design import LEAST_PROCESSES

WIDE = ("model.n_embd=256",)
"""Products that are large enough to be worth another format, a compiler or another device."""
LONG = ("model.context_length=256", "training.batch_size=2")
"""Score matrices that outweigh the rest of a block."""
MANY_WORDS = ("model.vocab_size=8191", "training.batch_size=4")
"""A head that outweighs the blocks; the number of words is odd."""
MANY_WEIGHTS = ("model.n_embd=256", "training.batch_size=1", "model.context_length=32")
"""Few tokens for many weights: most of a step is its update."""
MANY_TOKENS = ("model.n_layer=1", "model.n_embd=32", "training.batch_size=64")
"""Many tokens for few weights: a batch takes time beside its step."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "vocab_padding": MANY_WORDS,
    "weight_tying": ("model.tie_embeddings=false", *MANY_WORDS),
    "mup": ("model.tie_embeddings=false", "model.n_embd=128"),
    "chunked_cross_entropy": MANY_WORDS,
    "sdpa_attention": LONG,
    "bf16_full": WIDE,
    "bf16_mixed": WIDE,
    "compile": WIDE,
    **dict.fromkeys(("adafactor", "adam", "adamw_8bit", "adamw_bf16_state", "foreach_adamw"), MANY_WEIGHTS),
    **dict.fromkeys(("cautious_decay", "fused_adamw", "lion", "lora", "muon", "normuon", "sgd"), MANY_WEIGHTS),
    "optimizer_in_backward": ("training.gradient_clip=0", *MANY_WEIGHTS),
    **dict.fromkeys(("loader_workers", "pinned_prefetch", "streaming", "deferred_metrics"), MANY_TOKENS),
    **dict.fromkeys(("data_parallel", "fully_sharded", "zero_optimizer"), WIDE),
    **dict.fromkeys(("tensor_parallel", "sequence_parallel"), WIDE),
    "context_parallel": LONG,
    "pipeline_parallel": ("model.n_layer=4", *WIDE),
    "expert_parallel": ("model.n_expert=4", "training.gradient_clip=0", *WIDE),
}
"""What a technique has to find changed, in its baseline as well, before it has anything to do."""

COMPANIONS = {
    "context_parallel": "sdpa_attention",
    "sequence_parallel": "tensor_parallel",
    "expert_parallel": "data_parallel",
    "pinned_prefetch": "loader_workers",
}
"""What a technique cannot be without."""

GIVEN = {"streaming": f":path={os.path.relpath(Path(__file__).parents[1] / 'README.md')}"}
"""What a technique has no default for."""

TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True)
class Plan:
    """How one optimization is measured."""

    name: str
    overrides: tuple[str, ...]
    predictable: bool = True
    """What nobody predicts cannot be planned into memory beside others, so it is compared alone."""

    @property
    def treatment(self) -> str:
        return possible(self.name)


def possible(asked: str, given: Mapping[str, str] = GIVEN) -> str:
    """A technique, with fields or at its defaults, beside what it cannot be without."""
    name = asked.partition(":")[0]
    companion, fields = COMPANIONS.get(name), given.get(name, "") if asked == name else ""
    return f"{companion}+{asked}{fields}" if companion in catalogue() else asked + fields


def plan(source: str, name: str) -> Plan:
    """Raises `UsageError` with the reason where it cannot be had."""
    # The baseline then has as many threads as the ranks together, and they can be compared.
    ranks = ("ranks=2", "threads=null") if resolve(Spec(name=name)).axes() else ()
    wanted = Plan(name, (*SETTINGS.get(name, ()), *ranks))
    try:
        api.estimate(source, *wanted.overrides, optimizations=wanted.treatment)
    except Unpredicted:
        return Plan(name, wanted.overrides, predictable=False)
    return wanted


def groups(plans: Sequence[Plan], size: int) -> Iterator[list[Plan]]:
    """Plans that share a baseline, at most `size` at a time."""
    for key in dict.fromkeys((one.overrides, one.predictable) for one in plans):
        alike = [one for one in plans if (one.overrides, one.predictable) == key]
        most = size if key[1] else 1
        yield from (alike[at : at + most] for at in range(0, len(alike), most))


def refused(name: str, source: str, reason: UsageError, machine: Machine) -> CatalogueEntry:
    """The entry of what could not run."""
    return CatalogueEntry(
        optimization=name,
        treatment=name,
        configuration=source,
        device=device_of(machine),
        torch=version("torch"),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        status=Status.UNAVAILABLE,
        reason=str(reason) if isinstance(reason, Unavailable) else f"refused: {reason}",
    )


def stands(entry: CatalogueEntry, machine: Machine) -> bool:
    """Whether an entry is of this machine and torch, and of as many processes as an interval needs."""
    here = entry.device == device_of(machine) and entry.torch == version("torch")
    return here and entry.processes is not None and entry.processes >= LEAST_PROCESSES


def measure(
    names: Sequence[str], source: str, out: Path, *, seeds: int, blocks: int, size: int, seconds: float = math.inf
) -> Catalogue:
    """Measure these, and write them beside what is there; begin no group later than `seconds` from now."""
    end = time.monotonic() + seconds
    known = read(out) if out.exists() else Catalogue()
    plans, refusals = [], {}
    for name in names:
        try:
            plans.append(plan(source, name))
        except UsageError as reason:
            refusals[name] = reason
    with tempfile.TemporaryDirectory() as place:
        for group in groups(plans, size):
            if time.monotonic() > end:
                print("out of time; run the same command again to continue", file=sys.stderr)
                break
            overrides, listed = group[0].overrides, [one.treatment for one in group]
            print(" ".join((source, *overrides)), "with", *listed, file=sys.stderr, flush=True)
            comparison = api.compare(
                *(source, *overrides),
                treatments=listed,
                seeds=seeds,
                blocks=blocks,
                timeout=TIMEOUT_SECONDS,
                home=place,
            )
            found = [entry_of(comparison, one.name, one.treatment, " ".join((source, *overrides))) for one in group]
            known = known.renewed(found)
            known.write(out)
    machine = detect()
    known = known.renewed(refused(name, source, reason, machine) for name, reason in refusals.items())
    known.write(out)
    return known


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, or all that there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: the whole catalogue")
    parser.add_argument("--source", default="demo", help="preset or file of the reference configuration")
    parser.add_argument("--out", type=Path, default=shipped_path())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--group", type=int, default=4, help="most optimizations that share a baseline")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no group after this time")
    parser.add_argument("--anew", action="store_true", help="measure again what the file already has")
    options = parser.parse_args(arguments)
    names, machine = options.names or list(catalogue()), detect()
    if options.out.exists() and not options.anew:
        done = {one.optimization for one in read(options.out).entries if stands(one, machine)}
        names = [name for name in names if name.partition(":")[0] not in done]
    asked = {"seeds": options.seeds, "blocks": options.blocks, "size": options.group, "seconds": 60 * options.minutes}
    found = measure(names, options.source, options.out, **asked)
    for name in names:
        for one in found.of(name):
            print(f"{name}: {one.status}, proven {one.proven}, {one.reason or one.evidence}")


if __name__ == "__main__":
    main()
