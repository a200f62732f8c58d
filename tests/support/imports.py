"""Packages that a Python process imports."""

import subprocess
import sys

HEAVY = {"torch", "numpy", "pandas", "scipy", "matplotlib", "omegaconf", "rich", "transformers"}


def imported(*command: str) -> set[str]:
    """Top-level packages that a Python process imported."""
    done = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
