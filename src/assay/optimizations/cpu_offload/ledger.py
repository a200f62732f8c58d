"""Weights in the host's memory, as the device's ledger sees them: each module works on copies, which are then freed.

Forward holds copies of all weights of a module. Each node of backward copies its own weight again. A recomputed module
instead keeps its copies until the backward that follows has finished. Gradients of a module are moved to the host after
the last node of its backward.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from assay.cost.operation import Gradient, Operation
from assay.cost.optimizers.on_host import OnHost
from assay.cost.step import Cost
from assay.cost.tensors import Tensor


def weights_on_host(cost: Cost) -> Cost:
    """The ledger of a device that holds no weights, gradients or optimizer state between uses."""
    tape: list[Operation] = []
    for site, run in groupby(cost.tape, key=lambda one: _unit(one.site)):
        tape.extend(_fetched(cost, site, tuple(run)))
    return replace(cost, tape=tuple(tape)).updated_by(OnHost()).holding({})


def _fetched(cost: Cost, site: str, run: tuple[Operation, ...]) -> Iterator[Operation]:
    """A module's operations on copies of its weights, which its frame holds until it ends."""
    read = {name for one in run for name in one.inputs}
    copies = {name: replace(one, name=f"{name} for {site}") for name, one in cost.parameters.items() if name in read}
    yield from (_fetch(site, name, copy) for name, copy in copies.items())
    names, frame = ({name: copy.name for name, copy in copies.items()}, tuple(one.name for one in copies.values()))
    for one in (*run[:-1], replace(run[-1], holds=(*run[-1].holds, *frame))):
        yield (one if one.within(*cost.backward.recomputed) else _dropping(one, copies)).reading(names)


def _fetch(site: str, name: str, copy: Tensor) -> Operation:
    return Operation(
        name="aten._to_copy",
        site=site,
        kind="movement",
        inputs=(name,),
        outputs=(copy,),
        gradients=(Gradient.NONE,),
        backward="ToCopyBackward",
    )


def _dropping(operation: Operation, copies: Mapping[str, Tensor]) -> Operation:
    """The operation without saved copies of weights; backward copies each again as a temporary."""
    back = tuple(copies[name] for name in operation.saves if name in copies)
    saves = tuple(name for name in operation.saves if name not in copies)
    return replace(operation, saves=saves, scratch=operation.scratch.and_also(backward=back))


def _unit(site: str) -> str:
    parts = site.split(".")
    return ".".join(parts[:3] if parts[0] == "blocks" else parts[:1])
