"""An update in the host's memory, as the device's ledger sees it: no state and no temporaries."""

from dataclasses import dataclass

from assay.cost.optimizers.updates import Instant, Pieces, UpdateRule
from assay.cost.tensors import Tensor


@dataclass(frozen=True)
class OnHost(UpdateRule):
    """Any rule whose state and update are on the host."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """No tensors on the device."""
        return ()

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """One instant: gradients wait until the last weight has been copied back."""
        return (Instant("copies to and from the host", "", 0),)
