"""Ranks of absent GPUs beside the ledger and the plan, and a Llama of 7 billion parameters over 2 to 64 of them.

    python benchmarks/absent_ranks.py --python PYTHON [--out PAGE.md]

PYTHON is the Python of an environment with a CUDA build of torch, assay's requirements and transformers. It takes ten
minutes. The page is written to `docs/measured/absent_ranks.md`.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from assay import api
from assay.absent.ranks_answer import RanksAnswer
from assay.absent.toolchain import environment
from assay.config import ResolvedRun
from assay.errors import UsageError
from assay.estimator.every_rank import EveryRank, estimate_every_rank
from assay.estimator.projection import project
from assay.hardware.cluster import cluster
from assay.hardware.devices import absent_machine
from assay.optimizations import mesh_of, resolve_run

HERE = Path(__file__).parent
DEVICE = "h100"
PRESET = "gpt2-124m"
OVER = ("model.vocab_size=50304", "model.dropout=0", "training.batch_size=64")
CASES = (
    ("data_parallel", 2),
    ("data_parallel", 8),
    ("zero_optimizer", 8),
    ("fully_sharded", 2),
    ("fully_sharded", 8),
    ("fully_sharded", 64),
    ("tensor_parallel:degree=4", 4),
    ("sequence_parallel:degree=4+tensor_parallel:degree=4", 4),
    ("fully_sharded+tensor_parallel:degree=2", 8),
    ("pipeline_parallel:degree=4", 4),
    ("pipeline_parallel:degree=2+data_parallel", 8),
)
WORKSPACES = 33 * 2**20
"""One workspace of cuBLAS and one of cublasLt, in bytes."""
_BATCH = 16
"""Bytes of a token's id and target on the device."""
LLAMA_RANKS = (2, 4, 8, 16, 32, 64)
LLAMA_PARAMETERS = 6_738_415_616
SRC = str(HERE.parent / "src")


class Row(NamedTuple):
    """One rank of one case, by the absent GPU and by the ledger."""

    stack: str
    ranks: int
    rank: int
    found: dict[str, int]
    """Peaks of the third step, and bytes of weights, gradients and states."""
    sent: dict[str, int]
    """Payload of the collectives of the device in a step, by kind, as the absent GPU listed them."""
    ledger: EveryRank
    planned: float | None
    """Weights, gradients and states of the plan for this rank's stage, in bytes."""

    @property
    def tokens(self) -> int:
        """Tokens of the rank's rows."""
        run = self.ledger.run
        return run.tokens_per_step // mesh_of(run).degree("dp")

    @property
    def held(self) -> int:
        """Weights, gradients and states in bytes."""
        return sum(self.found[name] for name in ("weights", "gradients", "states"))

    @property
    def held_by_ledger(self) -> int:
        """The same by the ledger."""
        one = self.ledger.ranks[self.rank].to_dict()
        return sum(one[name] for name in ("parameter_bytes", "gradient_bytes", "optimizer_state_bytes"))

    @property
    def sent_by_ledger(self) -> dict[str, int]:
        """Payload by kind, by the ledger."""
        sums: Counter[str] = Counter()
        for one in self.ledger.communications[self.rank]:
            sums[one.collective] += round(one.count * one.payload_bytes)
        return dict(sums)


def rows(python: str) -> Iterator[Row]:
    """Run every case, and yield its first and its last rank."""
    for stack, ranks in CASES:
        run = resolve_run(api.configure(PRESET, [*OVER, "device=cuda", f"ranks={ranks}"], [stack]))
        ledger = estimate_every_rank(run, absent_machine(DEVICE))
        planned = plan_bytes(run)
        for rank in (0, ranks - 1):
            found, answer = on_rank(python, stack, ranks, rank)
            sent: Counter[str] = Counter()
            for one in answer.calls(rank):
                sent[one.name] += one.bytes if one.name != "recv" else 0
            stage = None if planned is None else planned[rank * len(planned) // ranks]
            yield Row(stack, ranks, rank, found, {name: size for name, size in sent.items() if size}, ledger, stage)
            print(stack, ranks, rank, found, file=sys.stderr, flush=True)


def plan_bytes(run: ResolvedRun) -> list[float] | None:
    """Weights, gradients and states of a rank by stage, as `assay plan` plans them; None if it refuses."""
    machines = cluster(DEVICE, -(-run.ranks // 8), min(run.ranks, 8))
    try:
        plan = project(run, machines).plan
    except UsageError as error:
        print(error, file=sys.stderr)
        return None
    return [one.weights + one.gradients + one.optimizer for one in plan.held]


def on_rank(python: str, stack: str, ranks: int, rank: int) -> tuple[dict[str, int], RanksAnswer]:
    """Run three steps on one rank. Raises `AssertionError` if they failed."""
    with tempfile.TemporaryDirectory() as folder:
        row, found = Path(folder) / "row.json", Path(folder) / "found.json"
        row.write_text(json.dumps({"preset": PRESET, "over": OVER, "stack": stack, "ranks": ranks}))
        command = [python, str(HERE / "absent_rank_step.py"), str(row), str(found)]
        answer = api.absent_ranks(DEVICE, command, ranks, run=str(rank))
        assert answer.status.value == "done", (stack, rank)
        return json.loads(found.read_text()), answer


def page(found: list[Row], llama: list[str], torch: str) -> str:
    """The page: what a rank holds, what it sends, and the Llama."""
    lines = [_HEAD.format(torch=torch, date=f"{datetime.now(UTC):%Y-%m-%d}", over=" ".join(OVER))]
    lines += ["| stack | ranks | rank | held | − ledger | plan | requested peak | − ledger | rest |"]
    lines += ["| --- | ---: | ---: " + "| ---: " * 6 + "|"]
    for one in found:
        peak = one.found["requested_peak"]
        planned = "" if one.planned is None else f"{one.planned:,.0f}"
        over = peak - one.ledger.ranks[one.rank].timeline.peak.nbytes
        cells = f"{one.held:,} | {one.held - one.held_by_ledger:+,} | {planned} | {peak:,}"
        cells += f" | {over:+,} | {over - WORKSPACES - _BATCH * one.tokens:+,}"
        lines.append(f"| {one.stack} | {one.ranks} | {one.rank} | {cells} |")
    lines += [
        _SENT,
        "| stack | ranks | rank | collective | payload | − ledger |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for one in found:
        for kind in sorted({*one.sent, *one.sent_by_ledger}):
            here, there = one.sent.get(kind, 0), one.sent_by_ledger.get(kind, 0)
            lines.append(f"| {one.stack} | {one.ranks} | {one.rank} | {kind} | {here:,} | {here - there:+,} |")
    return "\n".join([*lines, *llama]) + "\n"


def llama(python: str) -> Iterator[str]:
    """Yield the lines of the table of the Llama."""
    yield _LLAMA
    yield "| ranks | 16 bytes a parameter | requested | allocated | reserved | fits | all_gather | reduce_scatter |"
    yield "| ---: " * 5 + "| --- | ---: | ---: |"
    for ranks in LLAMA_RANKS:
        answer = api.absent_ranks(DEVICE, [python, str(HERE / "llama_over_ranks.py")], ranks, run="0")
        one = answer.answers[0]
        sums: Counter[str] = Counter()
        for call in answer.calls(0):
            sums[call.name] += call.bytes
        peak = one.peak
        assert peak is not None, ranks
        figures = (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes)
        cells = " | ".join(f"{figure / 2**30:.2f}" for figure in (16 * LLAMA_PARAMETERS / ranks, *figures))
        sent = " | ".join(f"{sums[name] / 2**30:.2f}" for name in ("all_gather", "reduce_scatter"))
        yield f"| {ranks} | {cells} | {one.fit} | {sent} |"
        print("llama", ranks, cells, file=sys.stderr, flush=True)


_HEAD = """# Ranks on absent GPUs

`python benchmarks/absent_ranks.py`: torch {torch}, {date}. Every rank runs alone on an absent H100 ([several
GPUs](../absent-gpu.md)), and the other ranks answer at once with nothing. NCCL's own buffers are a range only, and
are in no figure.

## A rank beside the ledger and the plan

`{over}`

GPT-2 of 124 million parameters in float32, divided by each technique: the first and the last rank. *Held* are weights,
gradients and the optimizer's state of the rank, in bytes. The ledger is that of `assay estimate --nproc` on an H100.
The plan is that of `assay plan`. It counts 2 + 2 + 12 bytes a parameter where this step has 4 + 4 + 8,
which differs where only the state is divided, and it has no counters of steps.

*Requested* is the peak of the third step. *Rest* is its difference to the ledger without two things that the ledger
leaves out: 33 MiB of workspaces, of cuBLAS and of cublasLt, and the batch on the device, 16 bytes a token. These sizes
remain:

- −600 bytes: counters of 148 weights, 4 bytes each, which are on the host, and two activation norms, which these steps
  do not compute.
- One byte a token more with tensor parallelism.
- 32 MiB more in a pipeline, cuBLAS's workspace of autograd's thread: a backward pass has run before the peak.
- On the first stage of a pipeline one more tensor of the size of attention's scores (rows of a micro-batch × heads ×
  1024² × 4 bytes). Softmax's backward takes such a tensor inside and frees it, which the ledger does not count.
"""
_SENT = """
### Collectives of a step

Payloads of one rank in bytes: the larger side of each call. Receives count at their sender. The ledger's all-reduce of
the loss also has two activation norms, of 4 bytes each, on each axis that sums them.
"""
_LLAMA = """
## A Llama of 7 billion parameters under FSDP2

`assay absent h100 --ranks N -- python benchmarks/llama_over_ranks.py`: float32 weights and AdamW, bfloat16 products,
every layer recomputed, one sequence of 4096 tokens a rank. Figures of rank 0 in GiB; collectives are payloads of a
step.
"""


def main() -> int:
    """Take all figures, and write or print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = SRC
    text = page(list(rows(given.python)), list(llama(given.python)), environment([given.python]).torch)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
