"""Collectives of a step on one rank: their payloads, their times, and the waits in a pipeline."""
