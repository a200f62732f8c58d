"""Analyses that help to choose a row: losses within a margin, trades, the Pareto front, rankings, times to a target."""
