"""Dashboards as tests ask them: a client of the application, and the messages of a stream."""

import json
from typing import Any

from starlette.testclient import TestClient

from assay.config import Home
from assay.dashboard.app import build_app


def client(home: Home, token: str | None = None, **options: Any) -> TestClient:
    """A browser on this machine, which keeps cookies and follows no redirect."""
    return TestClient(build_app(home.root, token), base_url="http://127.0.0.1:8765", follow_redirects=False, **options)


def batches(text: str) -> list[dict[str, Any]]:
    """The batches of a stream that has ended."""
    found = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [batch for message in found for batch in json.loads(message)]
