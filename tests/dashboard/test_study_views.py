"""Studies of the library that are predicted on a GPU, over HTTP."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from assay.config import Home
from support.dashboards import client as browser

ASKED = "?study=gpu-twenty-four&device=a100-40gb"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return browser(Home(tmp_path / "home"))


def test_the_page_says_that_nothing_was_measured(client: TestClient) -> None:
    page = client.get(f"/studies/predicted{ASKED}")
    assert page.status_code == 200
    assert "Predicted, not measured" in page.text
    assert "assay study run gpu-twenty-four --predicted --device a100-40gb" in page.text
    assert "−42.4" in page.text


def test_the_written_page_may_run_nothing(client: TestClient) -> None:
    page = client.get(f"/studies/predicted/page{ASKED}")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.text.count("<svg") == 8


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?study=..%2F..%2Fetc", "the library has no study"),
        ("?study=gpu-twenty-four&device=%3Cb%3E", "there is no device &#39;&lt;b&gt;&#39;"),
        ("?study=wikitext-recipe-report", "starts from the answer of another one"),
    ],
)
def test_a_study_that_cannot_be_predicted_is_a_sentence(client: TestClient, query: str, says: str) -> None:
    page = client.get(f"/studies/predicted{query}")
    assert page.status_code == 200
    assert says in page.text


def test_the_list_links_to_it(client: TestClient) -> None:
    assert 'href="/studies/predicted"' in client.get("/studies").text
