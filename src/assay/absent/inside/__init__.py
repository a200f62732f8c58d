"""The observer in the script's process. It imports the standard library and torch only.

assay need not be installed where the script runs, so this folder is loaded by its path, as the package `absent_inside`.
It learns when torch is imported, when an optimizer steps, what the host reads, and how the process ends. It writes what
it found as one JSON file, atomically.
"""

from .findings import ObserverFindings
from .functions import wrap_functions
from .host_reads import Reads
from .importing import after_import
from .loaded_library import Library
from .process_end import follow_end
from .process_groups import CollectiveCalls, follow_ranks
from .script_steps import Steps


def start() -> None:
    """Begin to observe this process. Call it once, before the script runs."""
    library = Library()
    collectives = CollectiveCalls()
    findings = ObserverFindings(library, collectives)
    reads = Reads(findings)
    steps = Steps(findings, reads)
    library.observe(reads.read, reads.unknown)
    follow_end(findings)

    def torch_is_there() -> None:
        steps.follow()
        findings.follow_torch()
        follow_ranks(collectives, library)
        wrap_functions(library, reads)

    after_import("torch", torch_is_there)
