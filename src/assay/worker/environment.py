"""The environment that decides a figure: versions, threads, processor, accelerator, corpus digest. Imports torch."""

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

from assay.config.run import ResolvedRun
from assay.hardware import Machine
from assay.hardware.detect import assay_version
from assay.optimizations import Unavailable
from assay.records.run import Environment

_TELLING = ("numpy", "safetensors", "memray", "triton")
"""Libraries in addition to torch whose version can change a figure."""


@cache
def versions() -> Mapping[str, str]:
    """Versions that must agree on all ranks of a run; those that this process has imported, so they are read once."""
    return {"assay": assay_version(), "torch": torch.__version__, "python": platform.python_version()}


def same_versions(everyone: Sequence[Mapping[str, str]]) -> None:
    """Raise `Unavailable` if the `versions` of any rank differ from rank 0's; `everyone` is in the order of ranks."""
    for rank, theirs in enumerate(everyone):
        for name, ours in everyone[0].items():
            if theirs.get(name) != ours:
                raise Unavailable(
                    f"rank {rank} has {name} {theirs.get(name)}, and rank 0 has {name} {ours}; "
                    "install the same version on all hosts"
                )


def environment(run: ResolvedRun, machine: Machine, device: torch.device, corpus_digest: str) -> Environment:
    """The environment of a run on `device`; threads are summed over its ranks."""
    on_gpu = device.type == "cuda"
    return Environment(
        **versions(),
        device=device.type,
        processor=machine.processor,
        cores=machine.cores if run.cores is None else len(run.cores),
        threads=torch.get_num_threads() * run.ranks,
        memory_bytes=machine.memory_bytes,
        accelerator=torch.cuda.get_device_name(device) if on_gpu else None,
        driver=_driver() if on_gpu else None,
        corpus_digest=corpus_digest,
        packages=dict(packages()),
        pinned=run.cores or (),
        instruction_set=machine.instruction_set,
    )


def _driver() -> str:
    """CUDA's runtime version, with the driver's if torch reports it."""
    driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: None)()
    return f"CUDA {torch.version.cuda}, driver {driver}" if driver else f"CUDA {torch.version.cuda}"


@cache
def packages() -> Mapping[str, str]:
    """Versions of further libraries that can change a figure, without those that are missing."""
    found = {}
    for name in _TELLING:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
