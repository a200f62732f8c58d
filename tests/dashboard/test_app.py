"""The guard: only reads, only for this machine or for who knows the token, and only this server's scripts."""

import pytest

from assay.config import Home
from assay.dashboard.app import COOKIE
from support.dashboards import client

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "NONSENSE"])
@pytest.mark.parametrize("path", ["/", "/static/dashboard.css"])
def test_only_reads_are_answered(home: Home, method: str, path: str) -> None:
    assert client(home).request(method, path).status_code == 405


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8765", "localhost:1", "LOCALHOST", "[::1]:8765"])
def test_this_machine_may_be_called_by_its_names(home: Home, host: str) -> None:
    assert client(home).get("/studies", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.", "[::2]:8765", "127.0.0.1@evil", ""],
)
def test_a_rebound_name_is_refused(home: Home, host: str) -> None:
    answer = client(home).get("/studies", headers={"host": host})
    assert answer.status_code == 421
    assert "Studies" not in answer.text


@pytest.mark.parametrize("path", ["/", "/studies", "/static/dashboard.css", "/static/plotly.min.js", "/nowhere"])
@pytest.mark.parametrize(
    "given", ["", "?token=", "?token=wrong", f"?token={TOKEN}x", "?token=%00", "?token=ä", f"?TOKEN={TOKEN}"]
)
def test_without_the_token_nothing_is_answered(home: Home, path: str, given: str) -> None:
    answer = client(home, TOKEN).get(path + given)
    assert answer.status_code == 403
    assert COOKIE not in answer.cookies


@pytest.mark.parametrize("cookie", [f"{COOKIE}=wrong", f"{COOKIE}=", f"other={TOKEN}", "=;;=", f'{COOKIE}="\\'])
def test_another_cookie_is_no_token(home: Home, cookie: str) -> None:
    assert client(home, TOKEN).get("/", headers={"cookie": cookie}).status_code == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(home: Home) -> None:
    browser = client(home, TOKEN)
    first = browser.get(f"/studies?a=1&token={TOKEN}&b=%26")
    assert first.status_code == 303
    assert first.headers["location"] == "/studies?a=1&b=%26"
    attributes = first.headers["set-cookie"].lower()
    assert "httponly" in attributes
    assert "samesite=strict" in attributes
    assert browser.get(first.headers["location"]).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example"])
def test_the_redirect_stays_here(home: Home, path: str) -> None:
    answer = client(home, TOKEN).get(f"http://127.0.0.1:8765{path}?token={TOKEN}")
    assert answer.headers["location"].startswith("/")
    assert not answer.headers["location"].startswith(("//", "/\\"))


def test_every_answer_has_the_policy(home: Home) -> None:
    browser = client(home)
    for path in ("/", "/studies", "/nowhere", "/static/runs.js"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
