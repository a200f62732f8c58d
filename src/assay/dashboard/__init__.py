"""The dashboard: a local web server that shows the runs, studies, predictions and laws of a home.

It reads the home and writes nothing, and answers only GET. It starts no process but for models of the user's own that
the command line has named. Each view is a file or a folder with `routes` and with functions that make plain rows, which
need no server. The server is Starlette on uvicorn, and figures are drawn by Plotly in the browser; both are the extra
`dashboard`, and are imported late.

The address is 127.0.0.1 unless another is named. There, the operating system lets only this machine's users connect.
Elsewhere a token is made, and only who has the link that is printed is answered. The connection itself is not
encrypted; use an SSH tunnel over networks that others can read.
"""

import gc
import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.config.home import Home, home_of
from assay.errors import UsageError, short_text

if TYPE_CHECKING:
    from types import FrameType

HOST, PORT = "127.0.0.1", 8765
_LIBRARIES = ("starlette", "uvicorn", "plotly")
_COLLECTED_AFTER = (10_000, 20, 50)
"""New objects after which young ones are looked through, and how many such collections precede one of older ones."""
_END_SECONDS = 3
"""Seconds that open streams get when the server ends; they look for its end once a second."""


def show(
    home: Home | Path | str | None = None,
    *,
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
    models: Sequence[str] = (),
    open_browser: bool = False,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serve a home until Ctrl-C; `on_ready` receives the link once the server answers.

    `models` are functions of your own, ``train.py:build``, that *What if* then offers; a request can name no other.
    Port 0 takes a free one. A `host` other than this machine's loopback gets a random `token` if none is given. Raises
    `UsageError` if the extra `dashboard` is not installed, or if the address cannot be bound.
    """
    from assay.dashboard.whatif.own_models import check_models

    check_installed()
    offered = check_models(models)
    checked = home_of(home).checked()
    bound = place(host, port, token)

    def ready() -> None:
        on_ready(bound.link)
        if open_browser:
            import webbrowser

            webbrowser.open(bound.link)

    serve(checked, bound, ready, offered)


class ServedAt(NamedTuple):
    """Where the dashboard listens."""

    socket: socket.socket
    host: str
    port: int
    token: str | None

    @property
    def link(self) -> str:
        """Address for a browser, with the token."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        if _is_any(self.host):
            name = socket.gethostname()
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def check_installed() -> None:
    """Raise `UsageError` if the extra `dashboard` is not installed."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(f"the dashboard needs {', '.join(missing)}; install with `pip install 'assay[dashboard]'`")


def place(host: str, port: int, token: str | None = None) -> ServedAt:
    """Bind an address; port 0 takes a free one. Elsewhere than on loopback a missing token is made at random.

    Raises `UsageError` if the address cannot be bound, or if a token has characters that a link cannot carry.
    """
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isalnum()):
        raise UsageError("--token needs at least eight letters and digits, because it stands in a link")
    if token is None and not is_loopback(host):
        token = secrets.token_hex(16)
    try:
        bound = _bound(host, port)
    except UnicodeError:
        raise UsageError(f"{short_text(host)} is no name of a machine; give an address such as 127.0.0.1") from None
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"{short_text(host)} and port {port} cannot be bound ({reason}); name another --port, or 0 for any free one"
        ) from None
    return ServedAt(bound, host, bound.getsockname()[1], token)


def serve(home: Home, place: ServedAt, on_ready: Callable[[], None] = lambda: None, models: Sequence[str] = ()) -> None:
    """Answer requests until Ctrl-C. Nothing of the home is written. Requests may choose from `models`."""
    import uvicorn

    from assay.dashboard.app import build_app

    app = build_app(home.root, place.token, models)
    collect_rarely()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            app.state.memory.ending.set()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_END_SECONDS,
        lifespan="off",
        ws="none",
    )
    # Uvicorn ends by itself at a signal and then raises it anew; for a server that is the usual end.
    with closing(place.socket), suppress(KeyboardInterrupt):
        Server(config).run(sockets=[place.socket])


def collect_rarely() -> None:
    """Look through old objects for garbage rarely, for as long as this process lives.

    The answers of *What if* that are kept have a million objects and no cycles. To look through them each time took a
    fifth of an answer's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)


def is_loopback(host: str) -> bool:
    """True if an address reaches this machine only; a name other than localhost counts as one that does not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    """True for the address that stands for all of a machine's addresses."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
