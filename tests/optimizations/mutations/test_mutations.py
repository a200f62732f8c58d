"""Every wrong variant of a technique is held against the proof, and every honest run passes it.

The quick selection takes one mutant of each technique. All of them are marked `slow`, and print what only a GPU could
have run. `benchmarks/mutations.py` writes the table.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from assay.optimizations import Stage, catalogue
from optimizations.mutations.harness import Account, Failing, judged, mutants_of, run_of, techniques
from optimizations.mutations.mutant import Mutant

_FEWEST = 4
_COMPILED = [name for name, kind in catalogue().items() if kind.stage is Stage.COMPILE]
