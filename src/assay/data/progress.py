"""Progress of a long preparation, reported by one optional callback."""

from collections.abc import Callable

Progress = Callable[[str, float | None], None]
"""Called with a sentence and the fraction done, from 0 to 1; the fraction is None if the sentence is a note."""


def silent(message: str, fraction: float | None) -> None:
    """Report nothing: the default callback."""
