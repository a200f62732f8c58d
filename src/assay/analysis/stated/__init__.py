"""Statements of a study from before it ran, against what it found: expectations and published figures."""
