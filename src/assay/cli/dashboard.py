"""`assay dashboard`: a local server that shows runs, studies, predictions and laws in a browser."""

from typing import Annotated

import typer


def dashboard(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes any free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Answer only who has this text in the link. Elsewhere than on this machine one is made at random.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE:FUNCTION", help="A model of your own that What if offers; may be repeated."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Show runs and studies in a browser.

    It reads the home, writes nothing, and starts no run. What if calls the function of a --model, in a process of its
    own, and no request can name another one. Ctrl-C ends it. It needs `pip install 'assay[dashboard]'`.

    \b
        assay dashboard
        assay dashboard --port 0 --open
        assay dashboard --model train.py:build
        assay dashboard --host 0.0.0.0         others need the link that is printed, with its token
    """
    from assay.cli.console import note
    from assay.dashboard import show

    def ready(link: str) -> None:
        typer.echo(link)
        note("Ctrl-C ends the dashboard")

    show(host=host, port=port, token=token, models=model or (), open_browser=open_browser, on_ready=ready)
    raise typer.Exit  # Ctrl-C is its usual end
