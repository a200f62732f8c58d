"""Sections of a study's answer on the choice of a row."""
