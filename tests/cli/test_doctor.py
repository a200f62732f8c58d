"""`assay doctor`: a table and what to mend; with --json one value."""

import pytest

from assay.hardware import examination
from assay.hardware.examination import Finding, FindingState
from cli.conftest import Assay


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What is found; a test may take findings away."""
    found = [
        Finding(subject="torch", here="2.13.0", state=FindingState.GOOD, means="it can train"),
        Finding(subject="disk", here=None, state=FindingState.MEND, means="it is full", remedy="free some space"),
    ]
    monkeypatch.setattr(examination, "examine", lambda host: iter(found))
    return found


def test_findings_to_be_mended_come_last(assay: Assay, findings: list[Finding]) -> None:
    said = assay("doctor")
    assert "mend\tdisk\tnot known\tit is full" in said.out
    assert said.out.splitlines()[-1] == "mend disk: free some space"
    findings.pop()
    assert assay("doctor").out.splitlines()[-1] == "Nothing to mend."


def test_json_is_the_findings(assay: Assay, findings: list[Finding]) -> None:
    assert [one["subject"] for one in assay("doctor", "--json").value] == ["torch", "disk"]
