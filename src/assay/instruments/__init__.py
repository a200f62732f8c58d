"""Instruments that record a step's operations, memory and time. None changes a number that it reads."""
