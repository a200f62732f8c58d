"""Advice on what to turn on: every compatible stack of techniques and micro-batch, ranked by time within a budget."""
