"""Runs over two ranks: a mutant travels by its name, and each rank breaks its own process."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optimizations.mutations.harness import Account, account
from optimizations.mutations.named import HONEST, mutants_of, run_of
from support.ranks import compute

Asked = tuple[str, str, bool, bool]
"""Technique, mutant, whether the mutant is in the run or only gives its settings, and whether it is a late one."""


def accounts(asked: Sequence[Asked], place: Path) -> list[Account]:
    """What came of each run, over all of its ranks."""
    home = f"{__name__}:answer"
    cases = [{"answered_by": home, "run": {"ranks": 2}, "asked": list(one)} for one in asked]
    return [Account(**one) for one in compute(cases, place)]


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """One rank's part in a run."""
    from assay.optimizations import mesh_of
    from assay.parallel.process_rank import join_ranks
    from assay.worker.build import device_of

    technique, name, broken, late = case["asked"]
    mutant = mutants_of(technique).get(name, HONEST)
    run = run_of(technique, mutant)
    with join_ranks(mesh_of(run), device_of(run, int(os.environ["LOCAL_RANK"]))) as ranks:
        own = account(run, mutant.break_it if broken else lambda patch: None, late=late, ranks=ranks)
        said = ranks.gather(json.dumps(asdict(own)))
        everyone = [json.loads(one) for one in said] if ranks.rank == 0 else []  # which alone is asked
    failures = [failure for one in everyone for failure in one["failures"]]
    return {"failures": list(dict.fromkeys(failures)), "seen": {str(n): one["seen"] for n, one in enumerate(everyone)}}
