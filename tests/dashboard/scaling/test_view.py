"""The page and its answers over HTTP."""

import pytest
from starlette.testclient import TestClient

from assay.dashboard.app import build_app


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(build_app(tmp_path_factory.mktemp("home")), base_url="http://127.0.0.1")


def test_the_page_answers_without_scripts(client: TestClient) -> None:
    page = client.get("/scaling?flops=1e22&law=Hoffmann+2")
    assert page.status_code == 200
    assert "assay scaling optimal --flops 1e22" in page.text


def test_an_answer_has_its_address_its_text_and_its_figures(client: TestClient) -> None:
    found = client.get("/scaling/answer?flops=1e22").json()
    assert found["query"] == "flops=1e22"
    assert found["said"].startswith("N ")
    assert {line["name"] for line in found["sizes"]["lines"]} >= {"Besiroglu", "Hoffmann 1"}
    assert len(found["losses"]["curves"]) == 1


@pytest.mark.parametrize("name", ["law", "flops", "device", "devices", "mfu", "price"])
@pytest.mark.parametrize("address", ["/scaling", "/scaling/answer"])
def test_text_of_an_address_stays_text(address: str, name: str, client: TestClient) -> None:
    found = client.get(address, params={name: "study:</script><script>alert(1)</script>"})
    assert found.status_code == 200
    html = found.text if address == "/scaling" else found.json()["html"]
    assert "<script>alert" not in html
