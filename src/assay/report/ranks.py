"""Predictions for each rank of a run as tables: its memory, its payload, and the collectives that it takes part in."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Table
from assay.report.mesh import divided
from assay.units import format_bytes, format_flops

if TYPE_CHECKING:
    from assay.estimator.every_rank import EveryRank


def ranks_report(every: "EveryRank") -> Iterator[Block]:
    """Yield two tables; nothing for a single rank."""
    if len(every.ranks) == 1:
        return
    columns = ["by rank", "weights", "optimizer state", "peak of tensors", "work", "payload"]
    columns += ["idle in the pipeline"] if every.idle_shares else []
    yield Table.of(columns, _ranks(every), columns[1:])
    heading = f"collectives of rank {every.fullest.cost.rank}"
    yield Table.of((heading, "among ranks that divide", "payload"), _payloads(every), ("payload",))


def _ranks(every: "EveryRank") -> Iterator[tuple[str, ...]]:
    """Yield a row for each set of ranks with equal figures."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, one in enumerate(every.ranks):
        figures = [
            format_bytes(one.cost.parameter_bytes),
            format_bytes(one.cost.optimizer_state_bytes),
            format_bytes(one.timeline.peak.nbytes),
            format_flops(one.step_flops),
            format_bytes(every.handed_bytes[rank]),
        ]
        figures += [f"{every.idle_shares[rank]:.1%}"] if every.idle_shares else []
        alike.setdefault(tuple(figures), []).append(rank)
    for shared, ranks in alike.items():
        yield _counted(ranks), *shared


def _counted(ranks: Sequence[int]) -> str:
    """Format ranks as ``"0–3, 8"``; consecutive ranks are one entry."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _payloads(every: "EveryRank") -> Iterator[tuple[str, ...]]:
    """Yield the payload of the fullest rank by collective and axis."""
    handed: Counter[tuple[str, str]] = Counter()
    for one in every.communications[every.fullest.cost.rank]:
        handed[one.collective, one.axis] += round(one.count * one.payload_bytes)
    for (collective, axis), nbytes in handed.items():
        yield collective, f"{divided(axis.split('+'))} ({axis})", format_bytes(nbytes)
