"""`assay`: each verb is a file of this folder, with a function of the same name or an `app` of several commands.

A verb that reads its words in a way of its own names the class of its `Command`.

Errors end here, each in one line of at most 500 characters on standard error, with an exit code of `records.status`. A
reader that closes a pipe early is no error.

Help is plain text, because loading the richer kind takes longer than everything else together. A verb's file therefore
imports typer and typing at its top, and the rest when it runs.
"""

import errno
import importlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from assay.cli.console import settle, silence
from assay.cli.signals import asked_to_stop, stop_on_signals
from assay.errors import LONGEST_VALUE, ProcessKilled, StorageError, UsageError, one_line
from assay.records.status import Exit

GROUPS = {
    "start": ("doctor", "optimizations", "recommend", "compare", "train"),
    "predict": ("estimate", "capacity", "cost", "plan", "inference", "mesh", "absent", "accuracy"),
    "measure": ("measure", "anatomy", "gradients", "gate", "machine", "study", "scaling"),
    "keep": ("runs", "data", "sample", "export", "schema", "dashboard"),
}
"""Verbs by what they are for, in the order in which help lists them."""
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
_LONGEST = 45
"""Largest number of characters of what help says about a verb."""


class _Verbs(typer.core.TyperGroup):
    """Runs a verb and turns its errors into a sentence and an exit code. Help lists the verbs by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs by group, each with the first sentence of its help."""
        formatter.write_paragraph()
        for group, verbs in GROUPS.items():
            formatter.write_heading(group.capitalize())
            with formatter.indentation():
                width = max(map(len, VERBS))  # the same for all groups
                formatter.write_dl([(f"{verb:<{width}}", self._short_help(verb)) for verb in verbs])

    def first_screen(self, ctx: Any) -> str:
        """Return the help without the options, which is shown where no verb is given."""
        formatter = ctx.make_formatter()
        for write in (self.format_usage, self.format_help_text, self.format_commands):
            write(ctx, formatter)
        return str(formatter.getvalue())

    def _short_help(self, verb: str) -> str:
        return self.commands[verb].get_short_help_str(_LONGEST)

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run the command line and exit with its code; without `standalone_mode` return the code."""
        try:
            code = super().main(*args, standalone_mode=False, **options)  # type: ignore[misc]
        except typer.Abort:
            code = _say(Exit.REFUSED, "nothing was done")
        except SystemExit as end:
            # The parser exits like this if the reader of its help has closed the pipe, which is no fault.
            code = 0 if isinstance(end.__context__, BrokenPipeError) else end.code
        except Exception as error:
            if not hasattr(error, "exit_code"):
                raise
            code = _refused_words(error)
        return sys.exit(code or 0) if standalone_mode else code

    def invoke(self, ctx: Any) -> Any:
        try:
            _working_directory_exists()
            words = ctx.args, ctx._protected_args
            try:
                value = super().invoke(ctx)
            except UsageError as error:
                if not ask_consent(error):
                    raise
                ctx.args, ctx._protected_args = words  # the parser has taken them
                value = super().invoke(ctx)
            sys.stdout.flush()
            if asked_to_stop():  # a verb that has a result of an interrupted run exits by itself
                raise KeyboardInterrupt
            return value
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            # The reader of a pipe has closed it (`assay runs ls | head`), because it needs no more.
            silence()
            raise typer.Exit(Exit.DONE) from None
        except BaseException as error:
            if _is_help(error):
                raise
            raise typer.Exit(_say(*_ending(error, bool(ctx.params.get("show_traceback"))))) from None


def _say(code: int, sentence: str) -> int:
    """Print the one line of an error, and return its exit code."""
    typer.echo(f"assay: {one_line(sentence)}", err=True)
    return code


def _ending(error: BaseException, show_traceback: bool) -> tuple[int, str]:
    """Exit code and sentence of an error."""
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED, "interrupted"
    if isinstance(error, UsageError):
        return Exit.REFUSED, str(error)
    if isinstance(error, ProcessKilled):
        return Exit.NO_RESULT, str(error)
    if isinstance(error, StorageError):
        return Exit.FAULT, str(error)
    if not isinstance(error, Exception):
        raise error
    return _unforeseen(error, show_traceback)


def _refused_words(error: Exception) -> int:
    """Print help if a verb is missing, else a sentence on the refused words. Return the exit code."""
    if _is_help(error):
        error.show()  # type: ignore[attr-defined]
        return Exit.REFUSED
    return _say(error.exit_code, error.format_message())  # type: ignore[attr-defined]


def _is_help(error: BaseException) -> bool:
    """True if a group of verbs was called without a verb: it answers with its help, which is an error to the parser."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _working_directory_exists() -> None:
    """Raise `UsageError` if the working directory has been deleted, because no relative path is valid then."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used ({error.strerror}); change to another folder first"
        ) from error


_PATH_ERRNOS = (
    *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS),
)
"""Errors of a path; their exceptions name the path at fault."""


def _unforeseen(error: Exception, show_traceback: bool) -> tuple[int, str]:
    """Exit code and sentence of an error that no verb handles; the parser's errors have their own."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return error.exit_code, error.format_message()
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return Exit.FAULT, f"the output could not be written: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _PATH_ERRNOS and error.filename is not None:
        return Exit.REFUSED, f"{error.filename}: {error.strerror}"
    from assay.config.extensions import own_line

    own = own_line(error)
    if show_traceback or os.environ.get("ASSAY_DEBUG"):
        traceback.print_exception(error)
        if own is not None:
            return Exit.REFUSED, f"{own}: this is a fault in an extension of yours"
        return Exit.FAULT, "this is a fault in assay, not in your input"
    if own is not None:
        return Exit.REFUSED, f"{own}: {type(error).__name__}: {_cut_message(error)}; correct this extension"
    return (
        Exit.FAULT,
        f"{type(error).__name__}: {_cut_message(error)} (a fault in assay; `assay --traceback …` shows where)",
    )


def _cut_message(error: Exception) -> str:
    """Text of an unforeseen error, short enough to leave room for the remedy."""
    return one_line(str(error))[:LONGEST_VALUE]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay')}")
        raise typer.Exit


def _assay(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    show_traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the traceback of an internal error.")
    ] = False,
) -> None:
    """Predict, apply and prove optimizations of GPT training.

    \b
        What does each optimization buy?   assay compare demo --with bf16_mixed
        Which ones should I turn on?       assay recommend gpt2-124m --device l4
        Does it fit, how long is a step?   assay estimate gpt2-124m --device h100
        How do I train on my own text?     assay train demo data.path=input.txt
        Does my script fit a GPU I lack?   assay absent h100 -- python train.py

    The tutorial is docs/tutorial.md. Runs and pages are in $ASSAY_HOME.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.command.first_screen(context), nl=False)  # type: ignore[attr-defined]


def ask_consent(error: BaseException) -> bool:
    """True if code that an imported record names was refused, and the user lets it run: the verb can begin again.

    Without a terminal the answer is no.
    """
    if not isinstance(error, UsageError) or not _at_a_terminal():
        return False
    from assay.store.foreign import ForeignCode

    if not isinstance(error, ForeignCode):
        return False
    typer.confirm(f"An imported record names the function {error.code}. Let this file run?", abort=True, err=True)
    error.allow()
    return True


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _application() -> typer.Typer:
    verbs = typer.Typer(
        name="assay",
        cls=_Verbs,
        callback=_assay,
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for name in VERBS:
        module = importlib.import_module(f"assay.cli.{name}")
        if isinstance(group := getattr(module, "app", None), typer.Typer):
            verbs.add_typer(group, name=name, no_args_is_help=True)
        else:
            verbs.command(name, cls=getattr(module, "Command", None))(getattr(module, name))
    return verbs


app = _application()


def main() -> None:
    """The `assay` command."""
    stop_on_signals()
    if not settle():
        sys.exit(_say(Exit.REFUSED, "standard output is closed; redirect it to a file or to /dev/null"))
    app()


if __name__ == "__main__":
    main()
