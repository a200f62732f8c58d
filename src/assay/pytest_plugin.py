"""The pytest plugin: a fixture `assay_gate` that checks a training step against a lock.

    def test_memory(assay_gate):
        assay_gate("tests/steps.py:build", device="h100")

Every run of pytest imports this file where assay is installed. So it imports nothing of assay before a test asks, and
no torch at all: a step is followed in a process of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gate = Callable[..., Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes locks anew."""
    group = parser.getgroup("assay")
    group.addoption("--assay-gate-update", action="store_true", help="lock the figures of gated steps anew")


@pytest.fixture
def assay_gate(request: pytest.FixtureRequest) -> Gate:
    """Check the step of a function by its name, ``file.py:function``, against `assay-gate.json` of the root folder.

    With ``--assay-gate-update`` lock it. Files are found from pytest's root folder.
    """
    folder, update = request.config.rootpath, request.config.getoption("assay_gate_update")

    def gate(
        step: str,
        device: str = "cpu",
        *,
        allow: str | None = None,
        strict: bool = False,
        lock: Path | str | None = None,
    ) -> None:
        __tracebackhide__ = True
        _check_name(step)
        from assay import api
        from assay.errors import UsageError
        from assay.report.gate import failure_text

        place: dict[str, Any] = {"lock": lock, "folder": folder}
        try:
            if update:
                api.gate_update([step], [device], **place)
                return
            found = api.gate_check([step], [device], allow=allow, strict=strict, **place)
            failure = failure_text(found) if found.exit_code else None
        except UsageError as error:
            failure = f"assay: {error}"
        if failure is not None:  # outside of the handler, or pytest would show the error twice
            pytest.fail(failure, pytrace=False)

    return gate


def _check_name(step: Any) -> None:
    """Fail for a function itself, which another process cannot import."""
    __tracebackhide__ = True
    if not isinstance(step, str):
        kind = getattr(step, "__qualname__", type(step).__name__)
        pytest.fail(
            f"assay_gate follows a step in a process of its own, which imports its function by name; give "
            f'"file.py:function" in place of {kind}',
            pytrace=False,
        )
