"""Code that imported records name: it is never run without a question that names its file.

The record of a run on a model of the user's own has the name of a function and a folder. Whoever continues the run
imports that file. A record from elsewhere may name any file of this machine. So an import notes these names in
`foreign_code.json` of the home, and a run whose model is among them does not start before the user has agreed.
"""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ConfigDict, ValidationError

from assay.config.base import Frozen
from assay.config.home import Home
from assay.config.model import ModelConfig
from assay.errors import UsageError, short_text
from assay.files import open_file, read_file, seal_doubt, seal_file, write_file


class Code(Frozen):
    """A function of a user's own, as a record names it."""

    own: str
    folder: str | None

    @classmethod
    def of(cls, model: ModelConfig) -> "Code | None":
        """Return the function that makes a model; None for assay's own model."""
        return None if model.own is None else cls(own=model.own, folder=model.own_folder)

    def __str__(self) -> str:
        module, _, function = self.own.rpartition(":")
        return f"{function} of {short_text(str(Path(self.folder or '.') / module))}"


class _Noted(Frozen):
    model_config = ConfigDict(strict=False)

    code: tuple[Code, ...] = ()


class ForeignCode(UsageError):
    """A run would run code that an imported record names."""

    def __init__(self, code: Code, home: Home) -> None:
        super().__init__(
            f"the model of this run is the function {code}, which an imported record names; read that file, and "
            "continue the run on a terminal, where you are asked whether it may run"
        )
        self.code, self.home = code, home

    def allow(self) -> None:
        """Let the code run from now on. Raises `StorageError`."""
        _write(self.home, [one for one in _noted(self.home) if one != self.code])


def remember(home: Home, models: Iterable[ModelConfig]) -> None:
    """Note the code of imported models. Raises `StorageError`, and `UsageError` if the earlier notes are damaged."""
    new = {code for model in models if (code := Code.of(model)) is not None}
    if new:
        _write(home, {*_noted(home), *new})


def check_own_code(home: Home, model: ModelConfig) -> None:
    """Raise `ForeignCode` if the function that makes a model is known from imported records only."""
    code = Code.of(model)
    if code is not None and code in _noted(home):
        raise ForeignCode(code, home)


def _file(home: Home) -> Path:
    return home.root / "foreign_code.json"


def _noted(home: Home) -> tuple[Code, ...]:
    path = _file(home)
    try:
        content = read_file(path)
        if seal_doubt(path.name, content):
            raise ValueError("it has no digest")
        return _Noted.model_validate_json(open_file(content)).code
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        reason = "it has other fields" if isinstance(error, ValidationError) else error
        raise UsageError(
            f"{path} cannot be read ({reason}), so nobody knows which code came with imported records; remove it if "
            "you trust all runs of this home"
        ) from error


def _write(home: Home, code: Iterable[Code]) -> None:
    noted = _Noted(code=tuple(sorted(code, key=str)))
    write_file(_file(home), seal_file(noted.model_dump_json(indent=1)))
