"""The dashboard: a local web server that shows the runs, studies, predictions and laws of a home.

It reads the home and writes nothing, and answers only GET. It starts no process but for models of the user's own that
the command line has named. Each view is a folder with `routes` and
with functions that make plain rows, which need no server. The server is Starlette on uvicorn, and figures are drawn by
Plotly in the browser; both are the extra `dashboard`, and are imported late.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from assay.config.home import Home, home_of

HOST, PORT = "127.0.0.1", 8765


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
    from assay.dashboard.serving import check_installed, place, serve
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
