"""Run an unchanged script on a GPU that is not there."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.absent.answer import AbsentAnswer
    from assay.absent.largest import LargestFit


def absent(
    device: str,
    command: Sequence[str],
    *,
    steps: int | None = None,
    devices: int = 1,
    reads: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> "AbsentAnswer":
    """Run a command such as ``["python", "train.py"]`` on an absent GPU, and return its peaks, counts and reads.

    `steps` ends the script after so many steps of its optimizer. `reads` states values, as in ``train.py:12=300``. The
    command's Python needs a CUDA build of torch. Raises `UsageError` if the machine or that Python does not allow it.
    """
    from assay.absent.answer import AbsentAnswer
    from assay.absent.devices import absent_device
    from assay.absent.launch import run_absent, stated_read

    found = absent_device(device)
    if not command:
        raise UsageError(
            f"no script is given; write it after two dashes, as in: assay absent {device} -- python train.py"
        )
    stated = [stated_read(one) for one in reads]
    launched = run_absent(command, found, count=devices, steps=steps, reads=stated, tell=on_progress)
    return AbsentAnswer(found, devices, command, launched)


def absent_largest(
    device: str,
    command: Sequence[str],
    *,
    steps: int | None = None,
    devices: int = 1,
    reads: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> "LargestFit":
    """Find the largest number in the place of ``{}`` in a command with which the script fits an absent GPU.

    The command is such as ``["python", "train.py", "--batch_size={}"]``. Each number is one run of `absent`, which ends
    after two steps unless `steps` says otherwise. Raises `UsageError` as `absent` does, or if nothing has ``{}``.
    """
    from assay.absent.largest import STEPS, largest_fit, with_number

    def ask(number: int) -> "AbsentAnswer":
        tried = with_number(command, number)
        found = absent(device, tried, steps=steps or STEPS, devices=devices, reads=reads, on_progress=on_progress)
        on_progress(f"{number}: {found.fit.words}")
        return found

    return largest_fit(ask)
