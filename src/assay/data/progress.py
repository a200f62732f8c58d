"""How a long preparation tells what it is doing: one callback, which may be absent."""

from collections.abc import Callable

Progress = Callable[[str, float | None], None]
"""Called with a sentence and the fraction done, from 0 to 1, or None where the sentence is a note."""


def silent(message: str, fraction: float | None) -> None:
    """The callback of a caller that gave none."""
