"""`assay machine`: this machine, and the rates that torch reaches on it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.hardware import Machine


def machine(
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again, even if rates are stored.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Threads of CPU kernels; default: torch's choice.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")] = False,
) -> None:
    """Show this machine, and measure its rates.

    The rates are those of products and copies. They are measured once, in some seconds, and stored for all homes of
    the user. Those of a home override them. ASSAY_MACHINE names their folder, by default ~/.cache/assay. They are
    measured again when the processor, torch or the number of threads changes.

    \b
        assay machine
        assay machine --fresh --json
        assay machine --threads 1
    """
    from assay.cli.console import note, print_json, print_table
    from assay.config import Home
    from assay.launch.rates import measured_machine
    from assay.report.kit.view import plain_record

    found = measured_machine(Home(), threads, fresh=fresh, tell=note)
    if as_json:
        print_json({**plain_record(found), "native_dtypes": list(found.native_dtypes)})
        return
    print_table(("machine", ""), _facts(found))
    print_table(("device", "dtype", "matmul", "in hardware"), _rates(found), right=("matmul",))


def _facts(found: "Machine") -> Iterator[tuple[str, str]]:
    from assay.units import format_bytes, format_seconds

    yield "processor", found.processor
    yield "cores", str(found.cores)
    yield "memory", format_bytes(found.memory_bytes)
    yield "instructions", " ".join(found.instructions) or "none for dtypes below 32 bits"
    if found.instruction_set:
        yield "instruction set of oneDNN", found.instruction_set
    for one in found.accelerators:
        yield "accelerator", f"{one.name}, {format_bytes(one.memory_bytes)}"
    if not found.accelerators:
        yield "accelerator", "none"
    for device, rates in found.rates.items():
        yield f"copy on {device}", f"{format_bytes(rates.bandwidth_bytes)}/s read and written"
        launches = (rates.launch_seconds, rates.backward_launch_seconds)
        yield f"launch on {device}", "{} forward, {} backward".format(*map(format_seconds, launches))
        if rates.operators:
            yield f"operators on {device}", f"{len(rates.operators)} speeds, which predicted step times use (--json)"
        yield f"measured on {device}", f"torch {rates.torch}, {rates.threads} threads"
        if rates.caveat:
            yield f"caution, {device}", f"{rates.caveat}; measure again with --fresh when the machine is idle"


def _rates(found: "Machine") -> Iterator[tuple[str, str, str, str]]:
    from assay.units import format_flops

    for device, rates in found.rates.items():
        for dtype, flops in rates.matmul_flops.items():
            native = ("yes" if dtype in found.native_dtypes else "no, converted") if device == "cpu" else "–"
            yield device, dtype, f"{format_flops(flops)}/s", native
