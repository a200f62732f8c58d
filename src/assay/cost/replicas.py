"""Replicas of a step that divide its batch, and what each holds of the weights: data parallelism and ZeRO as a ledger.

Of each weight a rank keeps equal rows, the last ones padded, so ranks behind a matrix with few rows keep air. Bytes are
those of `cost.groups`; who sends what is in `cost.collectives`.
"""

from collections.abc import Iterator
from dataclasses import replace

from assay.cost.collectives import Collective, Communication
from assay.cost.groups import Group
from assay.cost.step import Cost
from assay.cost.tensors import Tensor

_AXIS = "dp"


def replicated(cost: Cost) -> Cost:
    """Every rank keeps all weights and copies them where they are used; gradients are summed group by group."""
    groups = tuple(_groups(cost, ranks=1, reshard=False))
    return _summing(replace(cost.share(_AXIS), groups=groups), "all_reduce", 1)


def sharded(cost: Cost, *, reshard: bool) -> Cost:
    """Every rank keeps its rows of all weights; they are gathered for each forward, with `reshard` for each backward."""
    ranks, place = cost.mesh.degree(_AXIS), cost.place[_AXIS]
    groups = tuple(_groups(cost, ranks=ranks, reshard=reshard))
    held = {name: _rows(tensor, ranks, place) for name, tensor in cost.parameters.items()}
    padded = {name: _rows(tensor, ranks, 0) for name, tensor in cost.parameters.items()}
    divided = replace(cost.share(_AXIS), groups=groups).holding(held, padded=padded)
    gathering = 2 if reshard else 1
    gathered = _summing(divided, "reduce_scatter", 1)
    passes = gathering * cost.micro_batches
    sent = [Communication("all_gather", _AXIS, one.whole_bytes, passes, "weights", "float32") for one in groups]
    return gathered.sending(*sent)


def _summing(cost: Cost, collective: Collective, times: int) -> Cost:
    sent = (Communication(collective, _AXIS, one.whole_bytes, times, "gradients", "float32") for one in cost.groups)
    return cost.sending(*sent)


def _groups(cost: Cost, *, ranks: int, reshard: bool) -> Iterator[Group]:
    """A stage's own weights first, then its blocks'."""
    for sites in cost.stages or (_all_sites(cost),):
        blocks = [site for site in sites if site.startswith("blocks.")]
        names = [name for name in cost.parameters if any(name.startswith(f"{site}.") for site in sites)]
        inner = {site: [name for name in names if name.startswith(f"{site}.")] for site in blocks}
        rest = [name for name in names if all(name not in owned for owned in inner.values())]
        for covered, owned in ((sites, rest), *(((site,), owned) for site, owned in inner.items())):
            if owned:
                whole = sum(ranks * _rows(cost.parameters[name], ranks, 0).nbytes for name in owned)
                yield Group(tuple(covered), tuple(owned), whole, ranks, reshard)


def _all_sites(cost: Cost) -> tuple[str, ...]:
    sites = dict.fromkeys(".".join(one.site.split(".")[:2]) for one in cost.tape)
    return tuple(dict.fromkeys(site if site.startswith("blocks.") else site.split(".")[0] for site in sites))


def _rows(tensor: Tensor, ranks: int, place: int) -> Tensor:
    """What one of `ranks` keeps; the first one's rows are as many as the padded ones."""
    share = -(-tensor.shape[0] // ranks)
    rows = max(0, min(share, tensor.shape[0] - place * share))
    return replace(tensor, shape=(rows, *tensor.shape[1:]))
