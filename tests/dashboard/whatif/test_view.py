"""The page and its answers over HTTP: what a script reads, and that no text of an address becomes markup."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from assay.dashboard.app import build_app

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(build_app(tmp_path_factory.mktemp("home")), base_url="http://127.0.0.1")


def test_the_page_answers_without_scripts(client: TestClient) -> None:
    page = client.get("/what-if?preset=gpt2-124m&device=a100&with=bf16_mixed&with=sdpa_attention")
    assert page.status_code == 200
    assert "assay estimate gpt2-124m --with bf16_mixed+sdpa_attention --device a100" in page.text
    assert "What fits where" in page.text
    assert page.text.index("It fits one A100") < page.text.index("<form")


def test_an_answer_has_all_that_the_script_shows(client: TestClient) -> None:
    found = client.get("/what-if/answer?preset=demo&layers=5&with=lion").json()
    assert found["query"] == "preset=demo&layers=5&with=lion"
    assert found["values"]["layers"] == 5
    assert found["stack"] == {"lion": "lion"}
    assert len(found["memory"]["instants"]) == len(found["memory"]["layers"][0]["bytes"])
    assert found["summary"].startswith("It fits this machine with ")


def test_the_largest_batch_is_asked_for_after_the_answer(client: TestClient) -> None:
    query = "preset=demo&device=l4"
    assert "What fits where" not in client.get(f"/what-if/answer?{query}").json()["html"]
    table = client.get(f"/what-if/fit?{query}").json()["html"]
    assert "22.0 GiB" in table
    assert table.strip() in client.get(f"/what-if?{query}").text
    for nothing in ("layers=99999", "with=lion%2Bsgd"):
        assert client.get(f"/what-if/fit?{nothing}").json()["html"].strip() == ""


def test_the_figure_has_the_memory_of_the_device(client: TestClient) -> None:
    found = client.get("/what-if/answer?preset=demo&device=l4").json()["memory"]
    assert found["limit_bytes"] == 22558 * 2**20
    assert found["limit"] == "L4: 22.0 GiB"
    assert client.get("/what-if/answer?preset=demo").json()["memory"]["limit"].startswith("this machine")


@pytest.mark.parametrize("name", ["preset", "device", "layers", "with", "gpus", "micro"])
@pytest.mark.parametrize("address", ["/what-if", *(f"/what-if/{one}" for one in ("answer", "fit", "recommendation"))])
def test_text_of_an_address_stays_text(address: str, name: str, client: TestClient) -> None:
    found = client.get(address, params={name: HOSTILE})
    assert found.status_code == 200
    html = found.text if address == "/what-if" else found.json()["html"]
    assert "<script>alert" not in html


def test_an_address_that_cannot_be_read_leaves_the_controls_alone(client: TestClient) -> None:
    found = client.get("/what-if/answer?layers=99999").json()
    assert not found["read"]
    assert "from 1 to 128" in found["summary"]
    assert not found["html"].strip()
    assert found["memory"] is None


def test_a_recommendation_is_searched_and_then_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.dashboard.whatif import recommendation

    def known(question: object, home: object, most_loss: float = 1.0) -> recommendation.Recommended:
        return recommendation.Recommended("found", ("Turn on Lion.",), "lion", recommendation.WhatIfQuestion())

    monkeypatch.setattr(recommendation, "search_recommendation", known)
    client = TestClient(build_app(tmp_path), base_url="http://127.0.0.1")
    states = [client.get("/what-if/recommendation?preset=demo").json() for _ in range(200)]
    assert states[-1]["state"] == "found"
    assert "Turn on Lion." in states[-1]["html"]
    assert "/what-if?preset=demo&amp;with=lion" in states[-1]["html"]
