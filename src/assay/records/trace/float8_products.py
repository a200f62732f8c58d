"""Float8 part of a trace: the products of 8-bit factors in one step, their formats and their scales."""

from typing import Literal

from assay.config.base import Frozen


class Float8Product(Frozen):
    """All products of one step that agree in phase and formats."""

    phase: Literal["forward", "backward", "recompute", "update"]
    formats: tuple[str, str]
    """Dtypes of the left and the right factor."""
    count: int
    full_scale: int | None
    """Products in which the largest element of each factor is the largest number of its format, as with the best scale.
    None: the factors' values cannot be read, as in compiled code."""
