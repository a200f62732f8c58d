"""The proof of a run: the value check at its beginning, and the last trace at its end."""
