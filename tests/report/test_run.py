"""What a person is told to do next agrees with how the run ended."""

import pytest

from assay.config import Home
from assay.errors import START_AGAIN
from assay.launch.run_lock import claimed
from assay.records.status import Status
from assay.report.run import _hints
from assay.store.reconcile import compose
from support.children import make_ready


@pytest.mark.parametrize(
    ("status", "reason", "saved", "says"),
    [
        (Status.FAILED, f"every checkpoint is damaged; {START_AGAIN}", True, "assay runs rm "),
        (Status.FAILED, f"rank 1 failed: it is damaged; {START_AGAIN} (its log is x)", True, "assay runs rm "),
        (Status.FAILED, "division by zero", True, "continues from the newest checkpoint"),
        (Status.KILLED, "killed by signal 9", False, "starts again, because nothing was saved"),
    ],
)
def test_the_advice_agrees_with_the_reason(home: Home, status: Status, reason: str, saved: bool, says: str) -> None:
    with claimed(make_ready(home), home) as claim:
        (hint,) = _hints(compose(claim.folder, status, reason), saved)
    assert says in hint
    assert ("--resume" in hint) is (START_AGAIN not in reason)
