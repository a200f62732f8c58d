"""Configurations as a caller names them: a preset, a file, a run, overrides and optimizations."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.config.extensions import names_a_function
from assay.config.hf import CONFIG
from assay.config.home import Home
from assay.config.loading import load, stack
from assay.config.model import ModelConfig
from assay.config.run import Run, Spec
from assay.errors import UsageError, short_text

if TYPE_CHECKING:
    from assay.hardware import Machine

DEFAULT = "demo"
"""Preset that is used if none is named."""

Source = Run | str | Path | None
Stack = str | Spec | Sequence[str | Spec] | None
"""Optimizations as a text such as ``"sdpa_attention+bf16_mixed"``, a spec, a list of both, which add up, or None."""


def configure(source: Source = None, overrides: Sequence[str] = (), optimizations: Stack = ()) -> Run:
    """Return the run of a preset, a YAML file or another run, with ``key=value`` overrides and added optimizations.

    A source that is itself an override applies to the preset `demo`. So does one that names a function of the user's
    own as ``module:function``, which returns the model. A folder with the ``config.json`` of a Hugging Face model is
    that model. Raises `UsageError` with one sentence.
    """
    if source is not None and not isinstance(source, Run | str | Path):
        raise UsageError(
            f"a configuration is a text, a path or a run, and not {short_text(source)}; name a model of your own as "
            "'file.py:function', because processes of their own import it"
        )
    if isinstance(source, str) and names_a_function(source):
        return load(own_source(source), overrides, specs_of(optimizations))
    if isinstance(source, str | Path) and os.path.isfile(os.path.join(source, CONFIG)):
        return load(DEFAULT, (f"model.init_from={source}", *overrides), specs_of(optimizations))
    if isinstance(source, str) and "=" in source and not os.path.isfile(source):
        return configure(None, [source, *overrides], optimizations)
    return load(DEFAULT if source is None else source, overrides, specs_of(optimizations))


def own_source(name: str, folder: Path | None = None) -> Run:
    """Return the preset `demo` with a model of the user's own, imported from a folder, by default the working one."""
    preset = load(DEFAULT)
    model = {"own": name, "own_folder": str(folder or Path.cwd()), "context_length": preset.model.context_length}
    return preset.model_copy(update={"model": ModelConfig.model_validate(model)})


def with_initial_weights(run: Run, home: Home) -> Run:
    """Return the run with the model shape of its initial weights, which are checked.

    Their reader is imported only if they are named. Raises `UsageError`.
    """
    if run.model.init_from is None:
        return run
    from assay.launch.prepare import check_finite, with_initial_weights

    found = with_initial_weights(run, home)
    check_finite(found)
    return found


def with_initial_shape(run: Run, home: Home) -> Run:
    """Return the same for a prediction, for which the ``config.json`` of a Hugging Face model is enough."""
    if run.model.init_from is None:
        return run
    from assay.launch.prepare import with_initial_shape

    return with_initial_shape(run, home)


@contextmanager
def predictable(run: Run, home: Home) -> Iterator[Run]:
    """Yield a run as predictions need it: with the shape of its model and its vocabulary.

    A folder of a Hugging Face model needs its ``config.json`` only. The text is prepared if only that tells the
    vocabulary, and what was prepared is removed if the block refuses the run. Raises `UsageError`.
    """
    run = with_initial_shape(run, home)
    if run.with_vocabulary().model.vocab_size is not None or run.model.own is not None:
        yield run.with_vocabulary()
        return
    from assay.launch.prepare import leaving_nothing

    with leaving_nothing(run, home):
        yield _with_vocabulary(run, home)


def _with_vocabulary(run: Run, home: Home) -> Run:
    """Return the run with the size of its vocabulary, of which its prepared text tells.

    Raises `UsageError` if the text cannot be prepared.
    """
    from assay.data import prepare

    try:
        prepared = prepare(run.data, home.ready())
    except UsageError as error:
        raise UsageError(f"{error}; without the text, set model.vocab_size") from error
    return run.with_vocabulary(prepared.vocab_size)


def on_device(run: Run, device: str) -> "tuple[Run, Machine]":
    """Return the run on one GPU that may be absent, and the machine of that GPU's datasheet.

    Raises `UsageError` if the name is not known, and if CUDA does not run on the device.
    """
    from assay.hardware.devices import absent_machine

    return run.model_copy(update={"device": "cuda"}), absent_machine(device)


def specs_of(optimizations: Stack) -> tuple[Spec, ...]:
    """Return single optimizations. Raises `UsageError` if one cannot be read."""
    if optimizations is None:
        return ()
    if not isinstance(optimizations, str | Spec | Sequence):
        raise UsageError(f"optimizations={short_text(optimizations)} is not possible; give a text or a list of texts")
    return stack([optimizations] if isinstance(optimizations, str | Spec) else optimizations)


def title_of(source: Source) -> str:
    """Title of a configuration: its preset or file, or ``configuration`` for a `Run`."""
    if isinstance(source, Run):
        return "configuration"
    return DEFAULT if source is None or "=" in str(source) else str(source)


def preset_of(source: Source) -> str | None:
    """Preset or file that a configuration starts from; None for a `Run`."""
    return None if isinstance(source, Run) else Path(title_of(source)).name
