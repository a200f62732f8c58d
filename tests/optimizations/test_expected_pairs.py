"""Any two techniques that may be combined state together which values they compute."""

from itertools import combinations

from assay.config import Spec
from assay.errors import UsageError
from assay.hardware import Machine
from assay.optimizations import catalogue, check, expected_of
from support.runs import run_with

HERE = Machine(processor="any", cores=2, memory_bytes=2**34, instruction_set="avx512_core_bf16")


def test_every_compatible_pair_has_expected_values() -> None:
    """One's rule of an update may be the other's starting point, with fields of its own."""
    seen = set()
    for pair in combinations(sorted(catalogue()), 2):
        try:
            run = run_with(*(Spec.parse(name) for name in pair))
            check(run, HERE)
        except UsageError:
            continue
        expected_of(run)
        seen.add(pair)
    assert ("bf16_full", "muon") in seen
    assert len(seen) > 200
