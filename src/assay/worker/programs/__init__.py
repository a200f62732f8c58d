"""Processes other than that of a run: the anatomy of a step, rates of a device, times of steps."""
