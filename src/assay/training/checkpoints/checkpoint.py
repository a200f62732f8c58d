"""Checkpoints: all state that the rest of a run depends on, written atomically and without pickle.

    step-00000100/model.safetensors       weights by name, a tied one once, under its owner's name
    step-00000100/optimizer.safetensors   state.<parameter>.<key>, and stateful.<name>.<key> of other tensors
    step-00000100/state.json              step, tokens, seconds, mesh, generators, other state; SHA-256 of the two files

Batches are a function of (seed, step), so no loader has a state; streamed documents have a position. With the weights,
the optimizer's state and torch's generators, a run continues bit for bit on a CPU. On another mesh it continues within
rounding (`state`). All ranks write one folder under a hidden name, which is flushed and renamed. The digests detect a
damaged file; then the previous checkpoint is used. What is saved and what is loaded is compared with the live state bit
for bit (`stored`).
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.config.mesh import Mesh
from assay.errors import START_AGAIN, StorageError, UsageError
from assay.files import is_full, new_folder, storage_errors
from assay.model.weights import WEIGHTS, read_safetensors, write_json, write_safetensors
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.program import Step
from assay.training.checkpoints.state import (
    adopt_generators,
    copies_here,
    generator_states,
    load_optimizer,
    load_stateful,
    load_weights,
    optimized_at_rest,
    optimizer_tensors,
    parameters_at_rest,
    stateful_parts,
    weights_at_rest,
)
from assay.training.checkpoints.stored import OPTIMIZER, difference
from assay.training.evaluation import Evaluation
from assay.training.step_record import Position
from assay.training.stops import WrongValues

FORMAT = 3
KEPT = 2
"""Number of checkpoints that are kept: the newest, and the previous one to fall back to."""

STATE = "state.json"
_RESTORE = f"restore the model's code, or {START_AGAIN}"


def save(
    folder: Path, step: Step, position: Position, identity: str, ranks: Ranks = ALONE, keep: Collection[int] = ()
) -> Path:
    """Write the checkpoint of `position` into `folder`; every rank must call it.

    Deletes all but the last two and those of the steps to `keep`. Returns its folder. Raises `StorageError`, and
    `WrongValues` if the files differ from the live state.
    """
    place = folder / f"step-{position.step:08d}"
    plain, tensors = stateful_parts(step.program.stateful)
    streams = [json.loads(said) for said in ranks.gather(json.dumps(generator_states(step.program.device)))]
    with _naming_the_cause(place), _written_by_all(place, ranks) as made:
        _write(weights_at_rest(step), made / WEIGHTS, ranks)
        _write({**optimizer_tensors(step), **tensors}, made / OPTIMIZER, ranks)
        if ranks.rank == 0:
            state = {
                "format": FORMAT,
                "identity": identity,
                "position": _position_to_json(position),
                "mesh": vars(ranks.layout),
                "generators": streams,
                "stateful": plain,
                "sha256": _digests([made / name for name in (WEIGHTS, OPTIMIZER)]),
            }
            write_json({**state, "digest": _digest_of(state)}, made / STATE)
    if ranks.rank == 0:
        _flush_folder(folder)
        for old in complete(folder)[KEPT:]:
            if _step_of(old) not in keep:
                shutil.rmtree(old, ignore_errors=True)
    plain_now = {"stateful": plain, "generators": streams}
    _same(f"the checkpoint {place.name} does not hold the state of the run", place, plain_now, step, ranks)
    return place


def _write(tensors: Mapping[str, Tensor], path: Path, ranks: Ranks) -> None:
    if ranks.world > 1:
        from assay.training.checkpoints.sharded_files import write_spread

        write_spread(tensors, path, ranks)
    else:
        write_safetensors(tensors, path)


def complete(folder: Path) -> list[Path]:
    """Return the complete checkpoints in `folder`, newest first. Incomplete ones have a hidden name."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-[0-9]+", path.name)]
    return sorted(found, key=_step_of, reverse=True)


def _step_of(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def resume(folder: Path, step: Step, ranks: Ranks = ALONE, seed: int = 0) -> tuple[Position, list[str]]:
    """Load the newest undamaged checkpoint into `step` → its position, and notes for the user.

    Without a checkpoint, the position is the start. Damaged newer ones are removed: the run repeats their steps.
    Incomplete checkpoints of a killed process are removed too: a folder has one writer at a time. `seed` is the run's,
    and seeds the generators if another mesh wrote the checkpoint.
    Raises `UsageError` if there are checkpoints and all are damaged, or if the loaded one does not fit the run, and
    `WrongValues` if the state differs from the checkpoint's after loading.
    """
    for left in folder.glob(".*") if ranks.rank == 0 else ():
        shutil.rmtree(left, ignore_errors=True)
    notes: list[str] = []
    found = complete(folder)
    for place in found:
        try:
            state = read_state(place)
        except UsageError as error:
            notes.append(f"{error}; continuing from the checkpoint before it")
            continue
        _load(place, state, step, ranks)
        position = _position_from_json(state["position"])
        ranks.meet()  # every rank has read the damaged checkpoints before rank 0 removes them
        for later in found[: len(notes)] if ranks.rank == 0 else ():
            shutil.rmtree(later, ignore_errors=True)
        notes += adopt_generators(state, ranks, seed, step, position.step)
        _same(f"the run does not continue from the state of the checkpoint {place.name}", place, state, step, ranks)
        return position, notes
    if notes:
        raise UsageError(f"every checkpoint in {folder} is damaged; {START_AGAIN}")
    return Position(), notes


def read_state(place: Path) -> dict[str, Any]:
    """Return `state.json` of a checkpoint after all digests are checked.

    Raises `UsageError` if a file is damaged or the format is another.
    """
    try:
        state: dict[str, Any] = json.loads((place / STATE).read_text(encoding="utf-8"))
        whole = state.pop("digest") == _digest_of(state)
        whole = whole and _digests([place / name for name in state["sha256"]]) == state["sha256"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise UsageError(f"the checkpoint {place.name} is damaged")
    if state["format"] != FORMAT:
        raise UsageError(f"the checkpoint {place.name} has format {state['format']}, but this version reads {FORMAT}")
    return state


def _same(what: str, place: Path, state: Mapping[str, Any], step: Step, ranks: Ranks) -> None:
    """Raise `WrongValues` on every rank if the live state of one rank differs from the checkpoint's.

    Generators are compared only on the mesh that wrote the checkpoint; another mesh has other streams.
    """
    found = difference(place, state["stateful"], step, ranks)
    same_mesh = "mesh" not in state or Mesh(**state["mesh"]) == ranks.layout
    if not found and same_mesh and state["generators"][ranks.rank] != generator_states(step.program.device):
        found = "the random generator's state"
    if faults := [one for one in ranks.gather(found) if one]:
        raise WrongValues(f"{what}: {faults[0]} differs")


@torch.no_grad()
def _load(place: Path, state: Mapping[str, Any], step: Step, ranks: Ranks) -> None:
    parameters = parameters_at_rest(step)
    if ranks.world > 1:
        from assay.training.checkpoints.sharded_files import read_spread, read_spread_state

        read_spread(parameters, place / WEIGHTS)
        tensors = read_spread_state(optimized_at_rest(step), place / OPTIMIZER)
    else:
        weights = read_safetensors(place / WEIGHTS)
        if weights.keys() != parameters.keys():
            name = min(weights.keys() ^ parameters.keys())
            raise UsageError(f"{place} and the configuration differ in the weight {name!r}; {_RESTORE}")
        load_weights(step, weights)
        tensors = read_safetensors(place / OPTIMIZER)
    for copy, owner in copies_here(step):
        copy.copy_(owner)
    load_optimizer(step, tensors)
    load_stateful(step.program.stateful, state["stateful"], tensors)


def _position_to_json(position: Position) -> dict[str, Any]:
    seen = position.evaluation
    return {**vars(position), "evaluation": None if seen is None else vars(seen)}


def _position_from_json(values: Mapping[str, Any]) -> Position:
    seen = values["evaluation"]
    return Position(**{**values, "evaluation": None if seen is None else Evaluation(**seen)})


def _digest_of(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


@contextmanager
def _written_by_all(place: Path, ranks: Ranks) -> Iterator[Path]:
    """Yield the hidden folder that rank 0 makes, and that it renames when every rank has written its part."""
    if ranks.rank == 0:
        with new_folder(place, lambda _: False) as made:
            ranks.gather(str(made))
            yield made
            ranks.meet()
    else:
        made = Path(ranks.gather("")[0])
        with storage_errors(place):
            yield made
        ranks.meet()
    ranks.meet()


def _digests(paths: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of files by their names, in hexadecimal; files are read side by side."""
    with ThreadPoolExecutor(max(1, len(paths))) as pool:
        return {path.name: found for path, found in zip(paths, pool.map(_digest, paths), strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _naming_the_cause(place: Path) -> Iterator[None]:
    """Turn the errors of a full disk, also those of safetensors, into one `StorageError` that names the cause."""
    from safetensors import SafetensorError

    try:
        yield
    except StorageError as error:
        raise _full(place, error) if is_full(error.__cause__) else error from error.__cause__
    except SafetensorError as error:
        if "os error 28" in str(error):
            raise _full(place, error) from error
        raise StorageError(f"{place} could not be written: {error}") from error


def _full(place: Path, error: Exception) -> StorageError:
    return StorageError(f"the disk is full: {place.name} could not be written; free some space and resume the run")


def _flush_folder(folder: Path) -> None:
    """Make a rename durable, if the file system can flush folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
