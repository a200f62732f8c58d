"""States of torch's random generators in a checkpoint.

A run that continues on the mesh that wrote the checkpoint draws the same numbers as if it had never stopped. The saved
states do not fit another mesh. There generators are seeded anew from (seed, step, rank's place).
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from assay.config.mesh import Mesh
from assay.parallel.process_rank import Ranks
from assay.step.program import Step


def adopt(state: Mapping[str, Any], ranks: Ranks, seed: int, step: Step, done: int) -> list[str]:
    """Restore each rank's generators; on another mesh, seed them anew and return a note about it."""
    saved = Mesh(**state["mesh"])
    if saved == ranks.layout:
        restore(state["generators"][ranks.rank])
        return []
    said = f"{seed} {done} {ranks.noise(step.program.parallel.sequence_parts)}".encode()
    torch.manual_seed(int.from_bytes(hashlib.sha256(said).digest()[:8]))
    return [
        f"the checkpoint of step {done} was written on {saved} and is read on {ranks.layout}: "
        "losses agree within rounding, and dropout draws other masks"
    ]


def states(device: torch.device) -> dict[str, str]:
    """Return the states of this process's generators as text: the host's, and a CUDA device's."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return {name: bytes(state.tolist()).hex() for name, state in found.items()}


def restore(saved: Mapping[str, str]) -> None:
    """Set the generators of this process to saved states."""
    tensors = {name: torch.tensor(list(bytes.fromhex(state)), dtype=torch.uint8) for name, state in saved.items()}
    torch.set_rng_state(tensors["cpu"])
    if "cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["cuda"])
