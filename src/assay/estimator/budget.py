"""Hours, energy and money of training on a number of tokens, from a device's datasheet.

    seconds = FLOPs of a token · tokens / (devices · peak · MFU)

FLOPs are those of PaLM's convention, and so is MFU: the share of the 16-bit peak that the model's own FLOPs reach,
recomputation left out. 40 % is what well-tuned dense runs reach on large models (PaLM 46 %, arXiv:2204.02311; Llama 3
38 to 43 %, arXiv:2407.21783). Small models and small batches reach less, so measure yours. Energy is that of the boards
at their largest power, without the rest of a data centre.
"""

from abc import abstractmethod

from assay.config import ModelConfig
from assay.config.base import Frozen
from assay.cost.analytic.model_flops import CONVENTIONS, palm
from assay.hardware.devices import Device

USUAL_MFU = 0.4


class Bill(Frozen):
    """Time, energy and money of a training on equal devices."""

    device: Device
    devices: int
    mfu: float
    price: float | None
    """Money for an hour of one device."""

    @property
    @abstractmethod
    def model_flops(self) -> float:
        """FLOPs of the whole training, without recomputation."""

    @property
    def seconds(self) -> float:
        """Seconds of the training."""
        return self.model_flops / (self.devices * self.device.half_flops * self.mfu)

    @property
    def device_hours(self) -> float:
        """Hours of all devices together."""
        return self.seconds * self.devices / 3600

    @property
    def kilowatt_hours(self) -> float | None:
        """Energy of the boards; None if their power is not known."""
        return None if self.device.watts is None else self.device_hours * self.device.watts / 1000

    @property
    def money(self) -> float | None:
        """Cost of all devices; None without a price."""
        return None if self.price is None else self.device_hours * self.price


class FlopsBill(Bill):
    """Training of a model of which the FLOPs are all that is known."""

    flops: float

    @property
    def model_flops(self) -> float:
        """FLOPs of the whole training."""
        return self.flops


class Budget(Bill):
    """Training of a model on some tokens."""

    model: ModelConfig
    tokens: float

    @property
    def flops(self) -> dict[str, float]:
        """FLOPs of the whole training, by convention."""
        return {name: count(self.model) * self.tokens for name, count in CONVENTIONS.items()}

    @property
    def model_flops(self) -> float:
        """FLOPs of the whole training by PaLM's convention."""
        return palm(self.model) * self.tokens
