"""An update in the host's memory, as the device's ledger sees it: nothing is kept there, and nothing made."""

from dataclasses import dataclass

from assay.cost.tensors import Tensor
from assay.cost.updates import Instant, Pieces, UpdateRule


@dataclass(frozen=True)
class OnHost(UpdateRule):
    """Any rule, elsewhere."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """None on the device."""
        return ()

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Gradients wait until the last weight has come back."""
        return (Instant("copies to and from the host", "", 0),)
