"""Checks of `model.init_from` before a run starts: the folder, its model and the shapes of its tensors.

A folder holds a Hugging Face checkpoint, an assay export or a checkpoint of a run. Any other value is the name of
a run, and selects its newest checkpoint. The model is read from the configuration, and the shapes from the headers of
the safetensors files, so no torch is needed.
"""

import os
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from assay.config.fit import adopted, check_fit
from assay.config.hf import CONFIG, config_from_hf, is_hugging_face, read_json
from assay.config.home import Home
from assay.config.model import ModelConfig
from assay.config.paths import absolute
from assay.config.run import Run
from assay.cost.parameters import parameters
from assay.errors import UsageError
from assay.optimizations import trained_model
from assay.store.lookup import find
from assay.store.run_folder import RunFolder

AnyRun = TypeVar("AnyRun", bound=Run)

WEIGHTS = "model.safetensors"
_LISTED = 3


def with_initial_weights(run: AnyRun, home: Home) -> AnyRun:
    """Return the run with `model.init_from` as an absolute folder, and with that model's shape where the user set none.

    Raises `UsageError` if the weights do not exist, or with a list of all that does not fit.
    """
    source = run.model.init_from
    if source is None:
        return run
    folder = _folder(source, home)
    theirs = _model(folder)
    model = run.model.model_copy(update={"init_from": str(folder)})
    if theirs is not None:
        model = adopted(model, theirs)
        check_fit(model, theirs, source, hugging_face=is_hugging_face(folder))
    shapes = _shapes(folder)
    if not is_hugging_face(folder) and model.vocab_size is not None and shapes:
        _same_shapes(model, shapes, source)
    return run.model_copy(update={"model": model})


def _folder(source: str, home: Home) -> Path:
    place = absolute(source)
    if not os.path.isdir(place):
        return _checkpoint_of(source, home)
    if not any(place.glob("*.safetensors")):
        raise UsageError(
            f"model.init_from={source} is a folder without .safetensors files; name the folder of a checkpoint"
        )
    return place


def _checkpoint_of(source: str, home: Home) -> Path:
    try:
        found = find(home, source)
    except UsageError as error:
        raise UsageError(f"model.init_from={source} is neither a folder nor a run: {error}") from error
    checkpoint = found.newest_checkpoint()
    if checkpoint is None:
        raise UsageError(f"model.init_from={source}: the run {found.id} has no checkpoint; name a run that has one")
    return checkpoint


def _model(folder: Path) -> ModelConfig | None:
    """The model whose weights are in a folder; None if no configuration describes it."""
    if is_hugging_face(folder):
        return config_from_hf(folder)
    if (folder / CONFIG).is_file():
        try:
            return ModelConfig.model_validate(read_json(folder / CONFIG))
        except ValidationError as error:
            raise UsageError(f"{folder / CONFIG} is not the configuration of a model; export the run again") from error
    run = RunFolder(folder.parent.parent)
    return trained_model(run.spec().config) if run.spec_file.is_file() else None


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor from the headers of a folder's safetensors files. Raises `UsageError` if one is damaged."""
    from safetensors import SafetensorError, safe_open

    files = [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else sorted(folder.glob("*.safetensors"))
    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with safe_open(path, framework="numpy") as tensors:
                shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{path} is not a readable safetensors file ({error}); write it again") from error
    return shapes


def _same_shapes(model: ModelConfig, found: dict[str, tuple[int, ...]], source: str) -> None:
    """Raise `UsageError` with a list of the tensors that the model lacks, requires or has in another shape."""
    wanted = {name: tensor.shape for name, tensor in parameters(model).items()}
    differ = [
        f"{name} is {_shape(found.get(name))} and should be {_shape(shape)}"
        for name, shape in wanted.items()
        if found.get(name) != shape
    ]
    differ += [
        f"{name} is not part of the model" for name in found if name not in wanted and name != "head.projection.weight"
    ]
    if differ:
        more = f" and {len(differ) - _LISTED} more" if len(differ) > _LISTED else ""
        raise UsageError(f"the weights of {source} do not fit the model: {'; '.join(differ[:_LISTED])}{more}")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "×".join(map(str, shape))
