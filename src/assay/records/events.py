"""Words of the protocol between a parent and its measured child."""

GO, AGAIN = "go", "again"
"""Words that grant a turn: the next piece of work, or one more timed block."""
