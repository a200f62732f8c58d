"""Runs on disk: their folders, event logs and checkpoints, and the index of all of them."""
