"""Rungs of a search by successive halving, as its plan and its record keep them."""

from pydantic import Field

from assay.config.base import Frozen


class Halving(Frozen):
    """The rows of each rung, and how many of them run. A rung trains longer than the one before it."""

    rungs: tuple[tuple[str, ...], ...]
    """Labels of the rows of each rung. Rows at the same place of each rung have the same settings."""
    kept: tuple[int, ...] = Field(min_length=1)
    """Number of rows that run in each rung; in the first, all."""

    def share(self, row: str) -> float:
        """Return the share of the rows of a row's rung that run."""
        number = self.rung_of(row)
        return self.kept[number] / len(self.rungs[number])

    def rung_of(self, row: str) -> int:
        """Return the index of the rung that a row belongs to; the control runs with the first."""
        return next((number for number, rows in enumerate(self.rungs) if row in rows), 0)
