"""Typed results as plain data: evidence, traces, runs, ranks. Imports no torch."""
