"""Advice on what to turn on within some memory."""
