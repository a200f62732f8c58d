"""A trial of the user's own optimizations, before a study spends hours on cells that all fail alike.

Each stack with one of them trains a single step in a process of its own. A stack that is divided among ranks is left to
its first cell.
"""

import subprocess
import sys
from collections.abc import Iterable

from assay.config.home import Home
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.launch.prepare import ReadyRun
from assay.optimizations import is_own, optimizations_of
from assay.records.status import Status

_CHILD = (sys.executable, "-P", "-m", "assay.worker.programs.trial")


def try_own(prepared: Iterable[ReadyRun], home: Home, tell: Progress) -> None:
    """Try each different stack with an optimization of the user's own once.

    Raises `UsageError` with the file and the line of the first that fails.
    """
    stacks: dict[tuple[str, ...], tuple[list[str], ReadyRun]] = {}
    divided: dict[str, None] = {}
    for one in prepared:
        own = [each.name() for each in optimizations_of(one.run) if is_own(type(each))]
        if own and one.run.ranks == 1:
            stacks.setdefault(tuple(map(str, one.run.optimizations)), (own, one))
        elif own:
            divided |= dict.fromkeys(own)
    if divided:
        tell(f"not tried before the first run over ranks: {', '.join(divided)}", None)
    for own, one in stacks.values():
        tell(f"trying {', '.join(own)} in one step", None)
        _try(own, one, home)


def _try(own: list[str], one: ReadyRun, home: Home) -> None:
    done = subprocess.run(
        [*_CHILD, str(one.data_folder)],
        input=one.run.model_dump_json(),
        env=home.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == Status.UNAVAILABLE.exit_code:
        said = done.stderr.strip().splitlines()[-1]
        raise UsageError(f"a step with {', '.join(own)} fails ({said}); correct this extension, and nothing was run")
