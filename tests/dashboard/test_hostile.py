"""Hostile input: names and texts that hold markup, scripts, steering characters or megabytes, and paths that climb.

All records here could have been imported from another machine.
"""

import asyncio
import json
import re
from html.parser import HTMLParser
from typing import Any

import httpx2
import pytest

from assay.config import Home
from assay.dashboard.app import build_app
from assay.dashboard.pages import script_json
from assay.launch.prepare import ReadyRun
from assay.records.evidence import Evidence
from assay.records.run import SampledText
from assay.records.status import Status
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from assay.studies.folder import StudyFolder
from support.comparisons import record
from support.dashboards import batches, client
from support.records import made, say, step

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)> {{7*7}} javascript:alert(4)"
STEERING = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\u2066\x00\x9b31m"
MEGABYTES = "A" * 10_000_000


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(text: str) -> None:
    """No element or attribute of a page comes from a text, and no character steers."""
    for tag, attributes in Elements(text).found:
        assert (
            tag not in ("svg", "img", "object", "embed", "base", "meta")
            or "charset" in attributes
            or "name" in attributes
        )
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc")]
        assert not str(attributes.get("href", "")).lower().startswith("javascript")
        if tag == "script":
            inert = attributes.get("type") == "application/json"
            assert inert or str(attributes.get("src", "")).startswith("/static/")
    assert not set("\x1b\x07\x00\x9b\u202e\u2066") & set(text)
    assert len(text) < 1_500_000


def hostile_run(home: Home, ready: ReadyRun, text: str, *, ended: bool) -> RunFolder:
    folder = made(home, ready)
    spec = folder.spec()
    data = spec.config.data.model_copy(update={"path": text.replace("\0", "")})  # a configuration refuses it
    config = spec.config.model_copy(update={"data": data})
    spec = spec.model_copy(update={"preset": text, "config": config})
    folder.prepare(spec)
    say(folder, {"event": "phase", "name": text}, {"event": "note", "text": text}, step(0))
    say(folder, {"event": "evidence", "optimization": text, "observed": text, "verdict": True}, step(1))
    if ended:
        proof = Evidence(optimization=text, observed=text, verdict=True)
        changes = {
            "status": Status.FAILED,
            "reason": text,
            "evidence": (proof,),
            "notes": (text,),
            "sample": SampledText(prompt=text, text=text, temperature=0.8, seed=0),
        }
        folder.write_result(begun_result(spec).model_copy(update=changes))
    return folder


@pytest.mark.parametrize(
    ("text", "ended"),
    [(MARKUP, True), (MARKUP, False), (STEERING, True), (STEERING, False), (MEGABYTES, True)],
    ids=["markup", "markup, live", "steering", "steering, live", "megabytes"],
)
def test_texts_of_a_run_are_shown_as_texts(home: Home, ready_run: ReadyRun, text: str, ended: bool) -> None:
    run = hostile_run(home, ready_run, text, ended=ended).id
    browser = client(home)
    for path in ("/", "/runs", "/runs?part=table", f"/runs/{run}", f"/runs/{run}?against={run}"):
        answer = browser.get(path)
        assert answer.status_code == 200, (path, answer.text[-600:])
        assert_harmless(answer.text)
    stream = browser.get(f"/runs/{run}/events")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert not set("\x1b\x07\x00\x9b\u202e\u2066") & set(stream.text)
    assert [point[0] for batch in batches(stream.text) for point in batch["steps"]] == [0, 1]
    assert len(stream.text) < 100_000


@pytest.mark.parametrize("text", [MARKUP, STEERING, MEGABYTES], ids=["markup", "steering", "megabytes"])
def test_texts_of_a_study_are_shown_as_texts(home: Home, text: str) -> None:
    row = "sdpa_attention"
    found = record(
        treatments=(row,), name=text, question=text, changes={row: {"status": Status.FAILED, "reason": text}}
    )
    folder = StudyFolder(home.reports / found.id)
    folder.path.mkdir(parents=True)
    folder.write_record(found)
    folder.page_file.write_text("<script>alert(1)</script>")
    browser = client(home)
    for path in ("/studies", f"/studies/{found.id}", "/"):
        answer = browser.get(path)
        assert answer.status_code == 200, (path, answer.text[-600:])
        assert_harmless(answer.text)
    policy = browser.get(f"/studies/{found.id}/page").headers["content-security-policy"]
    assert "sandbox" in policy
    assert re.search(r"script-src 'sha256-[\w+/]{43}='; ", policy), "no script but one of a known digest"
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("text", [MARKUP, STEERING, "</script", "<!--", "\u2028"])
def test_data_for_scripts_cannot_end_its_element(text: str) -> None:
    made = str(script_json({"a": [text, float("nan"), float("inf")], text: 1}))
    assert not set("<>&\u2028\u2029") & set(made)
    assert json.loads(made)["a"] == [text, None, None]


CLIMBS = (
    *("../../store.sqlite", "..%2f..%2fstore.sqlite", "%2e%2e/%2e%2e/store.sqlite", "..%5c..%5cstore.sqlite"),
    *(
        "....//....//etc/passwd",
        "%252e%252e%252fetc%252fpasswd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "..",
        ".",
        "%00",
        "a%00b",
    ),
    *(".removed-half", "~root", "C:\\", "%c0%ae%c0%ae/", "x" * 5000),
)


@pytest.mark.parametrize(
    "place", ["/runs/{}", "/runs/{}/events", "/studies/{}", "/studies/{}/page", "/static/{}", "/{}"]
)
def test_no_path_leaves_its_folder(home: Home, ready_run: ReadyRun, place: str) -> None:
    made(home, ready_run)
    (home.runs / ".removed-half").mkdir(exist_ok=True)
    (home.root / "store.sqlite").write_bytes(b"SECRET")
    asked = client(home)
    for climb in CLIMBS:
        answer = asked.get(place.format(climb))
        assert answer.status_code in (200, 307, 404), (climb, answer.text)
        assert "SECRET" not in answer.text, climb
        assert "root:" not in answer.text, climb
        if answer.status_code == 200:  # the path was shortened to that of a view
            views = ("This is the home", "<h1>Runs</h1>", "<h1>Studies</h1>")
            assert any(one in answer.text for one in views), climb


@pytest.mark.parametrize("query", ["against=../../x", "against=%00", "against=" + "x" * 5000, "against=<script>"])
def test_another_run_is_looked_up_by_name_only(home: Home, ready_run: ReadyRun, query: str) -> None:
    answer = client(home).get(f"/runs/{made(home, ready_run).id}?{query}")
    assert answer.status_code == 200
    assert_harmless(answer.text)


@pytest.mark.parametrize(
    "query",
    [
        "page=-1",
        "page=99999999999999999999999999",
        "page=²",
        "sort=__class__",
        "order=x",
        "status=%00",
        "study=../x",
        "q=%ff",
    ],
)
def test_nonsense_in_a_query_is_no_error(home: Home, ready_run: ReadyRun, query: str) -> None:
    made(home, ready_run)
    assert client(home).get(f"/runs?{query}").status_code == 200


@pytest.mark.parametrize("offset", ["-1", "x", "1e9", "99999999999999999999", "²", "9" * 15])
def test_nonsense_as_an_offset_is_no_error(home: Home, ready_run: ReadyRun, offset: str) -> None:
    run = hostile_run(home, ready_run, "a", ended=True).id
    assert client(home).get(f"/runs/{run}/events?offset={offset}").status_code == 200


def test_a_fault_tells_the_browser_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.dashboard.study_progress.Studies.known", lambda self: 1 / 0)
    answer = client(home, raise_server_exceptions=False).get("/studies")
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert "Traceback" not in answer.text


def test_two_hundred_readers_lose_nothing(home: Home, ready_run: ReadyRun) -> None:
    runs = [hostile_run(home, ready_run, f"run {number}", ended=True).id for number in range(4)]

    async def read() -> list[Any]:
        app = build_app(home.root)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
            paths = [f"/runs/{runs[number % 4]}/events" if number % 2 else "/runs" for number in range(200)]
            return await asyncio.gather(*(browser.get(path) for path in paths))

    answers = asyncio.run(read())
    assert {answer.status_code for answer in answers} == {200}
    assert {len(batches(answer.text)[0]["steps"]) for answer in answers[1::2]} == {2}
    assert all(all(run in answer.text for run in runs) for answer in answers[::2])


def test_the_home_stays_as_it_was(home: Home, ready_run: ReadyRun) -> None:
    """Not even the end of a run that was killed is written, as `assay runs ls` does."""
    run = hostile_run(home, ready_run, "a", ended=False).id
    before = {path: path.stat().st_mtime_ns for path in home.root.rglob("*")}
    browser = client(home)
    for path in ("/", f"/runs/{run}", f"/runs/{run}/events", "/studies", "/scaling", "/what-if"):
        browser.get(path)
    assert {path: path.stat().st_mtime_ns for path in home.root.rglob("*")} == before
