"""A training on some tokens at the pace of a predicted step: hours and money, from and to.

All verbs that print hours or money of a training take them from here, so one question has one answer.
"""

from typing import Any

from pydantic import PositiveFloat, PositiveInt

from assay.config.base import Frozen

_HOUR = 3600.0


class Training(Frozen):
    """Steps of a predicted time, until so many tokens were trained on."""

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
    def seconds(self) -> float:
        """Seconds of the training at the predicted time of a step."""
        return self.tokens / self.tokens_per_step * self.step_seconds

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
