"""State other than weights, as a checkpoint has it: the optimizer's, a program's `stateful`, and random generators.

torch numbers an optimizer's state by position in its parameter groups. In a checkpoint it is stored by parameter name,
so that it does not depend on the grouping. Loaded tensors are copied, because those of safetensors are mapped from the
file. They would count as file pages and have the file's alignment, where arithmetic needs torch's own.

A run that continues on the mesh that wrote the checkpoint draws the same numbers as if it had never stopped. The saved
states of torch's random generators do not fit another mesh. There they are seeded anew from (seed, step, rank's place).
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.config.mesh import Mesh
from assay.errors import START_AGAIN, UsageError
from assay.parallel.process_rank import Ranks
from assay.step.program import NamedParameters, Stateful, Step


def weights_at_rest(step: Step) -> dict[str, Tensor]:
    """Return this rank's weights by name, without padded rows; of packed ones the numbers, in the host's memory.

    A tied parameter has its owner's name, also if the owner is on another rank.
    """
    return {name: step.numbers_of(name, one) for name, one in parameters_at_rest(step).items()}


def parameters_at_rest(step: Step) -> dict[str, Tensor]:
    """Return the parameters themselves by the same names: packed ones as they are, without padded rows."""
    rows = step.program.weights.rows_at_rest
    found = _by_owner(step, step.named_parameters())
    return {name: one.detach()[: rows[name]] if name in rows else one for name, one in found.items()}


def load_weights(step: Step, weights: Mapping[str, Tensor]) -> None:
    """Give this rank's parameters the values of `weights_at_rest`."""
    packed = step.program.weights.packed
    for name, parameter in parameters_at_rest(step).items():
        parameter.copy_(packed[name].pack(weights[name]) if name in packed else weights[name])


def optimized_at_rest(step: Step) -> dict[str, Tensor]:
    """Return the tensors that the optimizer updates, by the same names: whole parameters, or shards of them."""
    return _by_owner(step, step.optimized)


def copies_here(step: Step) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return (copy, owner) of tied weights if both are separate tensors on this rank.

    The first and the last stage of a pipeline may share a rank.
    """
    here = dict(step.named_parameters())
    both = ((here.get(copy), here.get(owner)) for copy, owner in step.program.weights.tied)
    return tuple((copy, owner) for copy, owner in both if copy is not None and owner is not None and copy is not owner)


def _by_owner(step: Step, parameters: NamedParameters) -> dict[str, Tensor]:
    owners = dict(step.program.weights.tied)
    elsewhere: dict[str, Tensor] = {owners[name]: parameter for name, parameter in parameters if name in owners}
    return elsewhere | {name: parameter for name, parameter in parameters if name not in owners}


def optimizer_tensors(step: Step) -> dict[str, Tensor]:
    """Return the optimizer's state as `state.<parameter>.<key>`, by name; numbers become float64 scalars.

    The order of entries differs between a new and a resumed optimizer. Sorted, both write the same file.
    """
    names = _names_by_index(step)
    rows, padded = step.program.weights.rows_at_rest, _padded(step)
    found = {
        f"state.{names[index]}.{key}": value[: rows[names[index]]]
        if isinstance(value, Tensor) and padded.get(names[index]) == value.shape
        else value
        if isinstance(value, Tensor)
        else torch.tensor(value, dtype=torch.float64)
        for index, entries in step.optimizer.state_dict()["state"].items()
        for key, value in entries.items()
    }
    return dict(sorted(found.items()))


def load_optimizer(step: Step, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state from `optimizer_tensors`. Raises `UsageError` for state of a parameter that is not there."""
    names = _names_by_index(step)
    shapes = {name: tuple(parameter.shape) for name, parameter in optimized_at_rest(step).items()}
    state: dict[int, dict[str, Tensor]] = {}
    for flat, tensor in tensors.items():
        kind, _, rest = flat.partition(".")
        name, _, key = rest.rpartition(".")
        if kind != "state":
            continue
        if name not in shapes:
            raise UsageError(
                f"the checkpoint has optimizer state of {name!r}, which is not a parameter of this run; {START_AGAIN}"
            )
        # Several ranks write a scalar as a vector of one element.
        scalar = tensor.shape == (1,) and shapes[name] != (1,)
        for index in (index for index, one in names.items() if one == name):
            value = tensor.reshape(()).clone() if scalar else _whole(tensor, name, step)
            state.setdefault(index, {})[key] = value
    step.optimizer.load_state_dict({**step.optimizer.state_dict(), "state": state})


def _padded(step: Step) -> dict[str, torch.Size]:
    """Return the shapes, by name, of parameters that have more rows here than in a checkpoint."""
    return {
        name: one.shape for name, one in optimized_at_rest(step).items() if name in step.program.weights.rows_at_rest
    }


def _whole(tensor: Tensor, name: str, step: Step) -> Tensor:
    """Return a copy with the rows of zeros that a checkpoint leaves out."""
    shape = _padded(step).get(name)
    # Adafactor's column statistics have one row; only a tensor with a row for each token lacks padding.
    if shape is None or tensor.shape != (step.program.weights.rows_at_rest[name], *shape[1:]):
        return tensor.clone()
    whole = tensor.new_zeros(shape)
    whole[: len(tensor)] = tensor
    return whole


def _names_by_index(step: Step) -> dict[int, str]:
    """Return each parameter's name in a checkpoint, by its number in the optimizer's `state_dict`."""
    names = {parameter: step.stored_name(name) for name, parameter in step.optimized}
    ordered = [parameter for group in step.optimizer.param_groups for parameter in group["params"]]
    return {index: names[parameter] for index, parameter in enumerate(ordered)}


def stateful_parts(stateful: Mapping[str, Stateful]) -> tuple[dict[str, dict[str, Any]], dict[str, Tensor]]:
    """Return every entry's state in two parts: values for JSON by entry, and tensors as `stateful.<entry>.<key>`."""
    plain: dict[str, dict[str, Any]] = {}
    tensors: dict[str, Tensor] = {}
    for entry, one in stateful.items():
        state = one.state_dict()
        plain[entry] = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
        tensors.update({f"stateful.{entry}.{key}": value for key, value in state.items() if isinstance(value, Tensor)})
    return plain, tensors


def load_stateful(
    stateful: Mapping[str, Stateful], plain: Mapping[str, Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state from `stateful_parts`."""
    for entry, one in stateful.items():
        prefix = f"stateful.{entry}."
        own = {flat.removeprefix(prefix): tensor.clone() for flat, tensor in tensors.items() if flat.startswith(prefix)}
        one.load_state_dict({**plain.get(entry, {}), **own})


def adopt_generators(state: Mapping[str, Any], ranks: Ranks, seed: int, step: Step, done: int) -> list[str]:
    """Restore each rank's generators; on another mesh, seed them anew and return a note about it."""
    saved = Mesh(**state["mesh"])
    if saved == ranks.layout:
        restore_generators(state["generators"][ranks.rank])
        return []
    said = f"{seed} {done} {ranks.noise(step.program.parallel.sequence_parts)}".encode()
    torch.manual_seed(int.from_bytes(hashlib.sha256(said).digest()[:8]))
    return [
        f"the checkpoint of step {done} was written on {saved} and is read on {ranks.layout}: "
        "losses agree within rounding, and dropout draws other masks"
    ]


def generator_states(device: torch.device) -> dict[str, str]:
    """Return the states of this process's generators as text: the host's, and a CUDA device's."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return {name: bytes(state.tolist()).hex() for name, state in found.items()}


def restore_generators(saved: Mapping[str, str]) -> None:
    """Set the generators of this process to saved states."""
    tensors = {name: torch.tensor(list(bytes.fromhex(state)), dtype=torch.uint8) for name, state in saved.items()}
    torch.set_rng_state(tensors["cpu"])
    if "cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["cuda"])
