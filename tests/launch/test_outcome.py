"""How a child ended, where it could not say so itself: of several ranks it is their launcher that was killed."""

from dataclasses import replace

import pytest

from assay.config import Home
from assay.launch.outcome import ending
from assay.launch.run_lock import claimed
from assay.records.status import Status
from assay.store.reconcile import compose
from support.children import make_ready

KILLED = "killed by signal 9, perhaps by the system because memory ran out"
LAUNCHER = f"the launcher of its ranks was {KILLED}, and the ranks could not continue without it"


@pytest.mark.parametrize(
    ("ranks", "own", "reason"),
    [
        (1, None, KILLED),
        (2, None, LAUNCHER),
        (2, Status.FAILED, LAUNCHER),
        (2, Status.KILLED, "its own"),
    ],
)
def test_who_was_killed_is_said(home: Home, ranks: int, own: Status | None, reason: str) -> None:
    ready = make_ready(home)
    with claimed(replace(ready, run=ready.run.model_copy(update={"ranks": ranks})), home) as claim:
        if own is not None:
            claim.folder.write_result(compose(claim.folder, own, "its own"))
        found = ending(claim.folder, -9, None, None)
    assert (found.status, found.reason) == (Status.KILLED, reason)
