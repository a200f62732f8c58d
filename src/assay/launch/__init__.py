"""The parent of a run: check it, start its child, follow it, and record its outcome. Imports no torch."""
