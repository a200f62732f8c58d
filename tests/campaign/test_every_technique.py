"""Every technique that this machine has, as a user runs it: a process of its own, proven at both ends.

The other tests build steps in their own process. There a compiler is switched off, a step is traced without the run's
other instruments, and a proof may hold that fails in a run.
"""

import sys
from pathlib import Path

import pytest

from assay import api
from assay.optimizations import catalogue
from assay.records.status import Status

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue())
def test_it_is_done_and_proven_in_a_run(name: str, tmp_path: Path) -> None:
    from assay.errors import UsageError
    from catalogue import plan

    try:
        how = plan("demo", name)
    except UsageError as reason:
        pytest.skip(str(reason))
    result = api.train("demo", *how.overrides, "training.steps=6", optimizations=how.treatment, home=tmp_path)
    assert (result.status, result.reason) == (Status.DONE, None)
    assert result.evidence
    assert all(one.verdict for one in result.evidence)
    assert result.values is not None
    assert result.values.checked
