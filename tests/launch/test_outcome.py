"""How a child ended, where it could not say so itself: of several ranks it is their launcher that was killed."""

from dataclasses import replace

import pytest

from assay.config import Home
from assay.launch.outcome import ending
from assay.launch.spawn import claim_folder
from assay.records.status import Status
from assay.store.result import compose
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
    with claim_folder(replace(ready, run=ready.run.model_copy(update={"ranks": ranks})), home) as claim:
        if own is not None:
            claim.folder.write_result(compose(claim.folder, own, "its own"))
        found = ending(claim.folder, -9, None, None)
    assert (found.status, found.reason) == (Status.KILLED, reason)


COUNTED = "the system counted a process that it killed because memory ran out"


@pytest.mark.parametrize(
    ("code", "ranks", "own", "status", "says"),
    [
        (-9, 1, None, Status.OUT_OF_MEMORY, f"killed by signal 9; {COUNTED}"),
        (-9, 2, Status.FAILED, Status.OUT_OF_MEMORY, f"was killed by signal 9; {COUNTED}, and the ranks could not"),
        (1, 2, Status.KILLED, Status.OUT_OF_MEMORY, f"its own; {COUNTED}"),
        (-11, 1, None, Status.KILLED, "killed by signal 11"),
        (0, 1, Status.DONE, Status.DONE, "its own"),
    ],
)
def test_a_kill_is_out_of_memory_if_the_system_counted_one(
    home: Home, code: int, ranks: int, own: Status | None, status: Status, says: str
) -> None:
    ready = make_ready(home)
    with claim_folder(replace(ready, run=ready.run.model_copy(update={"ranks": ranks})), home) as claim:
        if own is not None:
            claim.folder.write_result(compose(claim.folder, own, "its own"))
        found = ending(claim.folder, code, None, None, ran_out=True)
    assert found.status is status
    assert says in (found.reason or "")
