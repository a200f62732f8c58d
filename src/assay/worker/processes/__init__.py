"""Processes of a run: the channel to the parent, the agent of several ranks, torchrun, and their ends."""
