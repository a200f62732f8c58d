"""Rates of this machine: matrix products, copies, and links between processes."""
