"""Scaling laws: points of trained models, laws fitted to them, and what a law says of other sizes."""
