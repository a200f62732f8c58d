"""What else decides a figure: versions, threads, processor, accelerator, the digest of the corpus. Imports torch."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from assay.config.run import Run
from assay.hardware import Machine
from assay.optimizations import Unavailable
from assay.runs.record import Environment

_TELLING = ("numpy", "safetensors", "memray", "triton")
"""Libraries beside torch whose version can move a figure."""


def versions() -> dict[str, str]:
    """What all ranks of a run must have alike."""
    return {"assay": version("assay"), "torch": torch.__version__, "python": platform.python_version()}


def same_versions(everyone: Sequence[Mapping[str, str]]) -> None:
    """Raise `Unavailable` where a rank's `versions`, given in order of ranks, are not those of rank 0."""
    for rank, theirs in enumerate(everyone):
        for name, ours in everyone[0].items():
            if theirs.get(name) != ours:
                raise Unavailable(
                    f"rank {rank} has {name} {theirs.get(name)}, and rank 0 has {name} {ours}; "
                    "install the same version on all hosts"
                )


def environment(run: Run, machine: Machine, device: torch.device, corpus_digest: str) -> Environment:
    """The surroundings of a run on `device`; threads are those of all its ranks."""
    on_gpu = device.type == "cuda"
    return Environment(
        **versions(),
        device=device.type,
        processor=machine.processor,
        cores=machine.cores,
        threads=torch.get_num_threads() * run.ranks,
        memory_bytes=machine.memory_bytes,
        accelerator=torch.cuda.get_device_name(device) if on_gpu else None,
        driver=_driver() if on_gpu else None,
        corpus_digest=corpus_digest,
        packages=_packages(),
        instruction_set=machine.instruction_set,
    )


def _driver() -> str:
    """CUDA's runtime version beside the driver's, where torch tells it."""
    driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: None)()
    return f"CUDA {torch.version.cuda}, driver {driver}" if driver else f"CUDA {torch.version.cuda}"


def _packages() -> dict[str, str]:
    found = {}
    for name in _TELLING:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
