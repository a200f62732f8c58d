"""Measurements of one step as text: an anatomy, and gradients."""
