"""Checkpoints: the weights and all state of a run on disk."""
