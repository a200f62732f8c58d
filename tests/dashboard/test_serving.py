"""The address: loopback without a token, elsewhere with one; port 0; refusals in one sentence."""

import socket
import threading
import time
import urllib.request

import pytest

from assay import dashboard
from assay.config import Home
from assay.errors import UsageError


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.4", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback(host: str, is_here: bool) -> None:
    assert dashboard.is_loopback(host) == is_here


def test_a_token_is_made_elsewhere_only() -> None:
    with dashboard.place("127.0.0.1", 0).socket as bound:
        assert bound.getsockname()[1] > 0
    here, one, other = dashboard.place("127.0.0.1", 0), dashboard.place("0.0.0.0", 0), dashboard.place("0.0.0.0", 0)
    for place in (here, one, other):
        place.socket.close()
    assert here.token is None
    assert here.link == f"http://127.0.0.1:{here.port}/"
    assert one.token != other.token
    assert one.link.endswith(f":{one.port}/?token={one.token}")
    assert len(one.token or "") >= 32


def test_an_address_that_cannot_be_bound_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="name another --port"):
            dashboard.place("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UsageError, match="is no name of a machine"):
        dashboard.place("a..b", 0)
    with pytest.raises(UsageError, match="cannot be bound"):
        dashboard.place("no.such.host.invalid", 0)
    for token in ("short", "with space in it", "ümlaute-und-mehr", "a&b=cdefgh"):
        with pytest.raises(UsageError, match="eight letters"):
            dashboard.place("127.0.0.1", 0, token)


def test_a_missing_library_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(UsageError, match=r"needs uvicorn; install with `pip install 'assay\[dashboard\]'`"):
        dashboard.check_installed()


def test_it_answers_on_its_socket(home: Home) -> None:
    place = dashboard.place("127.0.0.1", 0)
    ready = threading.Event()
    threading.Thread(target=dashboard.serve, args=(home, place, ready.set), daemon=True).start()
    assert ready.wait(20)
    deadline = time.monotonic() + 10
    while True:
        try:
            with urllib.request.urlopen(place.link, timeout=5) as answer:
                assert b"This is the home" in answer.read()
                assert answer.headers["server"] is None
            return
        except ConnectionError:
            assert time.monotonic() < deadline
