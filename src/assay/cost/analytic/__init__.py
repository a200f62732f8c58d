"""Closed forms of a step on absent machines: layouts, and the formulas of papers."""
