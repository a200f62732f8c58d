"""Hours, energy and money of training on a number of tokens, on a device of a datasheet.

Hours are those of the predicted step of a stack, if it is known. Else they follow from an MFU that is given or assumed:

    seconds = FLOPs of a token · tokens / (devices · peak · MFU)

FLOPs are those of PaLM's convention, and so is MFU: the share of the 16-bit peak that the model's own FLOPs reach,
recomputation left out. 40 % is what well-tuned dense runs reach on large models (PaLM 46 %, arXiv:2204.02311; Llama 3
38 to 43 %, arXiv:2407.21783). Small models and small batches reach less, so measure yours. Energy is that of the boards
at their largest power, without the rest of a data centre.

All verbs that print hours or money of a training take them from here, so one question has one answer.
"""

from abc import abstractmethod
from math import ceil
from typing import Any

from pydantic import PositiveFloat, PositiveInt

from assay.config import ModelConfig
from assay.config.base import Frozen
from assay.cost.flop_conventions import CONVENTIONS, palm
from assay.estimator.memory_fit import Fit, StepBatch
from assay.hardware.devices import Device

_HOUR = 3600.0


class Training(Frozen):
    """Steps of a predicted time, until so many tokens were trained on: hours and money, from and to."""

    tokens: PositiveFloat
    tokens_per_step: PositiveInt
    """Tokens of a step on all devices."""
    step_seconds: PositiveFloat
    spread: tuple[float, float] | None = None
    """Factors between which the time of a step lies; None if the error of such a prediction was never measured."""
    devices: PositiveInt = 1
    price: float | None = None
    """Money for an hour of one device."""

    @property
    def steps(self) -> int:
        """Steps of the training; the last one is whole as well."""
        return ceil(self.tokens / self.tokens_per_step)

    @property
    def seconds(self) -> float:
        """Seconds of the training at the predicted time of a step."""
        return self.steps * self.step_seconds

    @property
    def hours(self) -> tuple[float, float]:
        """Hours of the training, from and to; both are equal if no spread is known."""
        low, high = self.spread or (1.0, 1.0)
        return low * self.seconds / _HOUR, high * self.seconds / _HOUR

    @property
    def device_hours(self) -> tuple[float, float]:
        """Hours of all devices together, from and to."""
        low, high = self.hours
        return low * self.devices, high * self.devices

    @property
    def money(self) -> tuple[float, float] | None:
        """Cost of all devices, from and to; None without a price."""
        if self.price is None:
            return None
        low, high = self.device_hours
        return low * self.price, high * self.price

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "tokens": self.tokens,
            "tokens_per_step": self.tokens_per_step,
            "step_seconds": self.step_seconds,
            "seconds": self.seconds,
            "devices": self.devices,
            "hours": list(self.hours),
            "device_hours": list(self.device_hours),
            "money": None if self.money is None else list(self.money),
        }


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


class FlopsCost(Bill):
    """Training of a model of which the FLOPs are all that is known."""

    flops: float

    @property
    def model_flops(self) -> float:
        """FLOPs of the whole training."""
        return self.flops


class TrainingCost(Bill):
    """Training of a model on some tokens: at the pace of a predicted step, or at a model FLOPs utilization."""

    model: ModelConfig
    tokens: float
    training: Training | None = None
    """The training at the pace of the step of a stack; None if the MFU was given, or is assumed."""
    stack: str = ""
    """Techniques of that step, as a user writes them."""
    batch: StepBatch | None = None
    """Batch of that step on each device."""
    fit: Fit | None = None
    """Need of that step beside the memory of the device; None if what it reserves is not known."""
    assumed: bool = False
    """True if nobody gave the MFU, and no step of the device is predicted."""

    @property
    def flops(self) -> dict[str, float]:
        """FLOPs of the whole training, by convention."""
        return {name: count(self.model) * self.tokens for name, count in CONVENTIONS.items()}

    @property
    def model_flops(self) -> float:
        """FLOPs of the whole training by PaLM's convention."""
        return palm(self.model) * self.tokens

    @property
    def hours(self) -> tuple[float, float]:
        """Hours of the training, from and to; both are equal at an MFU that was given or assumed."""
        return (self.seconds / 3600, self.seconds / 3600) if self.training is None else self.training.hours

    @property
    def mfu_between(self) -> tuple[float, float]:
        """The least and the most MFU that the hours come to."""
        low, high = (one * 3600 for one in self.hours)
        whole = self.model_flops / (self.devices * self.device.half_flops)
        return whole / high, whole / low


def mfu_of(model: ModelConfig, device: Device, training: Training) -> float:
    """Return the share of the peak of all devices that the model's own FLOPs take in a training."""
    return palm(model) * training.tokens / (training.seconds * training.devices * device.half_flops)
