"""Operators of one step in their order: the module of each, its time, and the memory alive at its end."""
