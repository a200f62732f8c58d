"""Instruments that only watch: what a step did, what it held, how long it took. None changes a number that it reads."""
