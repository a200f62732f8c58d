"""Cases that are computed by several ranks: forked once for many, each in a process group of its own.

Ranks read a list of cases from a file, and rank 0 writes what came of each. Cases for the most ranks come first: a rank
that no later one needs has ended.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.ranks.forks import forked

ATTEMPTS = 8
"""How often tensors are counted again that a thread of gloo's may hold for longer; a busy machine needs several."""

Case = Mapping[str, Any]
"""`run`: a configuration, and on how many ranks it runs (1: on one device); `steps`; `dtype`: of the weights; `whole`:
whether an evaluation and, in float64, the final weights are asked for; `traced`: whether the second step is traced and
proven, as it is if nothing is said; `folder`: where a checkpoint may lie, or none is made; `peaks`: whether tensors'
peaks are measured at the end; `peak_tries`: in how many steps, at most; `watched`: in how many steps a pipeline's
stages are; `broken`: a rank, a parameter and a value that fills it there, after which a step that is not finite is
diagnosed, and an evaluation."""


def compute(cases: Sequence[Case], place: Path, again: bool = True) -> list[dict[str, Any]]:
    """What each case came to, in order.

    A rank that a signal ends has crashed in torch or gloo, which is seen once in some ten suites ("malloc(): unaligned
    tcache chunk"). Then all are computed again, once, with a warning.
    """
    import torch.distributed as dist

    order = sorted(range(len(cases)), key=lambda index: -ranks_of(cases[index]))
    most = ranks_of(cases[order[0]])
    asked, answered, errors = place / "cases.json", place / "answers.json", place / "errors.txt"
    answered.unlink(missing_ok=True)
    # One meeting place for all: every new one asks for the name of this machine, which takes seconds on some networks.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    asked.write_text(json.dumps({"port": store.port, "cases": [cases[index] for index in order]}))
    if code := forked(most, asked, answered, errors):
        said = errors.read_text() if errors.exists() else "what ranks are forked from has ended"
        if code < 0 and again:
            warnings.warn(f"signal {-code} ended a rank, and all ranks begin again: {said[-500:]}", stacklevel=2)
            errors.unlink(missing_ok=True)
            return compute(cases, place, again=False)
        raise AssertionError(said)
    answers: dict[int, dict[str, Any]] = dict(zip(order, json.loads(answered.read_text()), strict=True))
    return [answers[index] for index in range(len(cases))]


def settled_peaks(ranks: Sequence[Mapping[str, Any]], case: Case, near: object, place: Path) -> list[int]:
    """Each rank's peak, measured again while it is not `near`.

    A thread of gloo's may let go of a tensor late in every step of a process: that only adds, so the least counts.
    """
    peaks = [one["peak"] for one in ranks]
    for _ in range(ATTEMPTS):
        if peaks == near:
            break
        again = compute([case], place)[0]["ranks"]
        peaks = [min(peak, one["peak"]) for peak, one in zip(peaks, again, strict=True)]
    return peaks


def ranks_of(case: Case) -> int:
    """Number of ranks of a case."""
    return int(case["run"]["ranks"])
