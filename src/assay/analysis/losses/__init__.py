"""Losses of a row against the baseline's: their pairs step by step, and the bounds that a promise sets."""
