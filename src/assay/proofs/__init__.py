"""Checks that the proofs of several techniques share. They read a `Trace` and import no torch."""
