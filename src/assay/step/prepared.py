"""Counts of sequences that are not simply read from prepared tokens, for a trace.

Some techniques make batches in another way: they pack documents, ask other processes or copy ahead. Each adds one
counter to its program's witnesses, and counts the sequences that it makes.
"""

from dataclasses import dataclass


@dataclass(eq=False)
class PreparedSequences:
    """Counter of one technique's sequences since its program was described."""

    by: str
    """Kind of the maker, which a proof asks for."""
    sequences: int = 0
    makers: int = 0
    """Number of makers of the last batch, for instance of processes, as one of them reported it; 0: unknown."""
