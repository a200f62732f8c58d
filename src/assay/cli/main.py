"""`assay`: each verb is a file of this folder, with a function of its own name or an `app` of several.

Errors end here, each in one sentence on standard error: what a person can mend exits 2, a disk that refuses and
anything unforeseen exit 1, an interrupt exits 130. Help is plain text, because loading the richer kind takes longer
than everything else together; so a verb's file imports typer and typing at its top, and the rest when it runs.
"""

import errno
import importlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from assay.cli.signals import stop_on_signals
from assay.errors import StorageError, UsageError

VERBS = (
    "train",
    "compare",
    "estimate",
    "anatomy",
    "mesh",
    "optimizations",
    "sample",
    "export",
    "machine",
    "data",
    "runs",
)
"""In the order in which help lists them."""

_USAGE, _FAILED, _INTERRUPTED = 2, 1, 130


class _Verbs(typer.core.TyperGroup):
    """Runs a verb and turns what it raises into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            code, sentence = _INTERRUPTED, "interrupted"
        except UsageError as error:
            code, sentence = _USAGE, str(error)
        except StorageError as error:
            code, sentence = _FAILED, str(error)
        except Exception as error:
            if _is_help(error):
                raise
            code, sentence = _unforeseen(error, bool(ctx.params.get("show_traceback")))
        typer.echo(f"assay: {sentence}", err=True)
        raise typer.Exit(code)


def _is_help(error: Exception) -> bool:
    """A group of verbs without a verb answers with its help, which is an error to the parser."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _unforeseen(error: Exception, show_traceback: bool) -> tuple[int, str]:
    """An error of the parser says how to exit, a full disk under standard output is not ours; any other is."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return error.exit_code, error.format_message()
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return _FAILED, f"the output could not be written: {error.strerror}"
    if show_traceback or os.environ.get("ASSAY_DEBUG"):
        traceback.print_exception(error)
        return _FAILED, "this is a fault in assay, not in your input"
    what = " ".join(str(error).split())
    return _FAILED, f"{type(error).__name__}: {what} (a fault in assay; `assay --traceback …` shows where)"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay')}")
        raise typer.Exit


def _assay(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    show_traceback: Annotated[bool, typer.Option("--traceback", help="Show where an unforeseen error arose.")] = False,
) -> None:
    """Predict, apply and prove optimizations of GPT training, and compare them honestly.

    \b
    assay train demo training.steps=100        train one model and measure it
    assay compare demo --with sdpa_attention   a baseline against one treatment
    assay optimizations                        what there is to turn on
    assay runs ls                              what has been run

    Runs, data and pages lie in $ASSAY_HOME, by default ./.assay.
    """


def _application() -> typer.Typer:
    verbs = typer.Typer(
        name="assay",
        cls=_Verbs,
        callback=_assay,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for name in VERBS:
        module = importlib.import_module(f"assay.cli.{name}")
        if isinstance(group := getattr(module, "app", None), typer.Typer):
            verbs.add_typer(group, name=name, no_args_is_help=True)
        else:
            verbs.command(name)(getattr(module, name))
    return verbs


app = _application()


def main() -> None:
    """The `assay` command."""
    stop_on_signals()
    try:
        app()
    except BrokenPipeError:
        # The reader of a pipe has gone (`assay runs ls | head`): nothing more to say, and no way to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
