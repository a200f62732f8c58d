"""Communication time by the α–β model: steps of a collective times latency, plus bytes sent over bandwidth.

Nothing is hidden behind computation here; the caller accounts for overlap. The model is the best case of a large
message on an idle network, without waiting for late ranks.
"""

from collections.abc import Iterable

from assay.config.mesh import Mesh
from assay.cost.collectives import Collective, Communication, sent_bytes, steps
from assay.hardware.links import Link, Network


def collective_seconds(collective: Collective, ranks: int, payload_bytes: float, link: Link) -> float:
    """Seconds of one collective over `ranks` ranks with a payload of `payload_bytes`."""
    return link.seconds(sent_bytes(collective, ranks, payload_bytes), steps(collective, ranks))


def seconds(communications: Iterable[Communication], mesh: Mesh, network: Network) -> float:
    """Seconds of all communications, one after the other, each on the link of its axis."""
    return sum(
        network.link(mesh, one.axis).seconds(one.sent_bytes(mesh), one.steps(mesh))
        for one in communications
        if one.ranks(mesh) > 1
    )
