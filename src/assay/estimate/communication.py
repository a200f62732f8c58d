"""How long communication takes by the α–β model: a collective's steps times a latency, and what is sent over a width.

Nothing is hidden behind computation here: what overlaps is for the caller to say. α–β is a best case of a large
message on an idle network, and says nothing of waiting for a rank that is late.
"""

from collections.abc import Iterable

from assay.config.mesh import Mesh
from assay.cost.collectives import Collective, Communication, sent_bytes, steps
from assay.hardware.links import Link, Network


def collective_seconds(collective: Collective, ranks: int, payload_bytes: float, link: Link) -> float:
    """Seconds of one collective of `ranks` ranks over a whole tensor of `payload_bytes`."""
    return link.seconds(sent_bytes(collective, ranks, payload_bytes), steps(collective, ranks))


def seconds(communications: Iterable[Communication], mesh: Mesh, network: Network) -> float:
    """Seconds of all of them, one after the other, each on the link that its axis has."""
    return sum(
        network.link(mesh, one.axis).seconds(one.sent_bytes(mesh), one.steps(mesh))
        for one in communications
        if one.ranks(mesh) > 1
    )
