"""A recommendation over several GPUs that may be absent: their cluster, and the layouts of a step on it."""

from typing import TYPE_CHECKING

from assay.advise.placed import LayoutAdvice
from assay.api.advising.result import LayoutRecommendation, values_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.advise.problem import Limits
    from assay.config.run import ResolvedRun
    from assay.hardware import Machine
    from assay.hardware.cluster import Cluster

_GPUS_PER_NODE = 8


def cluster_of(gpus: int | None, gpus_per_node: int | None, device: str | None, of: str | None) -> "Cluster | None":
    """Return the cluster of so many GPUs of `device`; None for one GPU, or if no number is given.

    Raises `UsageError` for an impossible number, a missing device, and memory that a plan does not know.
    """
    from assay.hardware.cluster import cluster

    if gpus is None:
        if gpus_per_node is not None:
            raise UsageError("--gpus-per-node is of several GPUs; give their number with --gpus")
        return None
    if gpus < 1:
        raise UsageError(f"{gpus} GPUs are not possible; give at least one")
    if device is None:
        raise UsageError("GPUs are predicted from their datasheet; name them with --device, such as a100")
    each = _GPUS_PER_NODE if gpus_per_node is None else gpus_per_node
    if each < 1 or (gpus > each and gpus % each):
        raise UsageError(f"{gpus} GPUs do not fill nodes of {each}; choose --gpus-per-node so that it divides {gpus}")
    if gpus == 1:
        return None
    if of is not None:
        raise UsageError("a plan counts the tensors of a rank, and no other memory; leave out --of or --gpus")
    return cluster(device, max(1, gpus // each), min(gpus, each))


def placed(
    run: "ResolvedRun",
    here: "Machine",
    there: "Cluster",
    limits: "Limits",
    words: str,
    training: tuple[float | None, float | None],
) -> LayoutRecommendation:
    """Search the layouts of a step. `here` is one device of the cluster, with the rates of its datasheet.

    `training` has the tokens of a whole training and the price of an hour of one GPU.
    """
    from assay.advise.layouts import layout_advice
    from assay.estimator.uncollected import without_collection

    with without_collection():
        found = layout_advice(run, here, there, limits, words)
    tokens, price = training
    return LayoutRecommendation(**values_of(found, LayoutAdvice), tokens=tokens, price=price)
