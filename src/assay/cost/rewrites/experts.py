"""Experts divided among the ranks that share a batch, on a tape: rows are sent to their experts and back.

The experts of each layer need two exchanges of rows in forward and two of their gradients in backward
(arXiv:2006.16668). An exchange of the numbers of rows precedes them. A rank sends n·k rows for its n tokens, whatever
the router does. The number that it receives is the router's choice. It is assumed to be as many, which is true if the
ranks' experts are chosen equally often.

The payload of an exchange is its larger side, so the predicted bytes are the least that a rank can exchange. They are
exact for a rank whose experts are chosen no more often than the mean. On a fuller rank they lack its surplus of rows,
as do its activations.

Between the exchanges there are two gathers, because arriving rows are sorted by rank and then by expert. Both save
their index.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from assay.cost.layers import Tape
from assay.cost.operation import Collectives, Gradient, Operation, Scratch, Sending, Tensor
from assay.cost.step_cost import Cost

_AXIS = "dp"
_EXCHANGE = Sending("all_to_all", _AXIS)


def divide_experts(cost: Cost) -> Cost:
    """The ledger of one of the ranks that own whole experts, each of which also receives the others' tokens."""
    ranks, place = cost.mesh.degree(_AXIS), cost.place[_AXIS]
    owned = tuple(name for name in cost.parameters if ".experts." in name)
    learned = {name: one.piece(ranks, place) if name in owned else one for name, one in cost.parameters.items()}
    pieces = {name: one.piece(ranks, place) if name in owned else one for name, one in cost.pieces.items()}
    tape = tuple(_exchanged(cost, ranks))
    sharding = replace(cost.sharding, owned=owned)
    return replace(cost, tape=tape, parameters=learned, sharding=sharding).holding(pieces)


def _exchanged(cost: Cost, ranks: int) -> Iterator[Operation]:
    for site, run in by_experts(cost.tape):
        yield from _there_and_back(cost, site, run, ranks) if site else run


def by_experts(tape: Tape) -> Iterator[tuple[str, Tape]]:
    """The tape in runs: the operations of a layer's experts with their site, and those between with an empty one."""

    def experts(operation: Operation) -> str:
        inner, found, _ = operation.site.partition(".experts")
        return inner + found if found else ""

    for site, run in groupby(tape, key=experts):
        yield site, tuple(run)


def _there_and_back(cost: Cost, site: str, run: Tape, ranks: int) -> Iterator[Operation]:
    rows, out = cost.values[run[0].inputs[0]], run[-1].outputs[0]
    counts = Tensor(f"{site}:arriving", (ranks, _experts(cost, site) // ranks), "int64", batched=False)
    ends = Tensor(f"{site}:ends", counts.shape[1:], "int32", batched=False)
    order, again = (Tensor(f"{site}:{label}", rows.shape[:2], "int64") for label in ("order", "order back"))
    arrived, sorted_rows = (replace(rows, name=f"{site}:{label}") for label in ("arrived", "sorted"))
    computed, leaving = (replace(out, name=f"{site}:{label}") for label in ("computed", "leaving"))
    yield replace(_integers("all_to_all", rows, counts), site=site, collectives=Collectives(_EXCHANGE))
    yield replace(_integers("aten.sort", counts, order, ends), site=site, scratch=Scratch((order, order)))
    yield _exchange(site, rows, arrived)
    yield _gather(site, arrived, order, sorted_rows)
    there = {rows.name: sorted_rows.name, **{name: ends.name for name in run[0].inputs if name.endswith(":ends")}}
    yield from (_making(one.reading(there), out.name, computed) for one in run)
    yield replace(_integers("aten.sort", order, again), site=site, scratch=Scratch((again,)))
    yield _gather(site, computed, again, leaving)
    yield replace(_exchange(site, leaving, out), holds=(rows.name,))


def _experts(cost: Cost, site: str) -> int:
    return cost.parameters[f"{site}.up"].shape[0]


def _integers(name: str, of: Tensor, *made: Tensor) -> Operation:
    """An operation without gradients on the integers of the routes."""
    return Operation(name, "", "movement", (of.name,), made, (Gradient.NONE,))


def _exchange(site: str, leaving: Tensor, arriving: Tensor) -> Operation:
    return Operation(
        name="all_to_all",
        site=site,
        kind="movement",
        inputs=(leaving.name,),
        outputs=(arriving,),
        gradients=(Gradient.FRESH,),
        backward="all_to_all",
        collectives=Collectives(_EXCHANGE, _EXCHANGE),
    )


def _gather(site: str, rows: Tensor, index: Tensor, out: Tensor) -> Operation:
    return Operation(
        name="aten.index_select",
        site=site,
        kind="movement",
        inputs=(rows.name, index.name),
        outputs=(out,),
        gradients=(Gradient.FRESH, Gradient.NONE),
        saves=(index.name,),
        backward="IndexSelectBackward",
    )


def _making(operation: Operation, name: str, instead: Tensor) -> Operation:
    return replace(operation, outputs=tuple(instead if one.name == name else one for one in operation.outputs))
