"""Steps of the script. The first optimizer that steps counts them; when it is gone, the next one that steps does.

A script with two optimizers, or with one for each parameter, thus counts each of its steps once. The counts of a step
reach from the end of one update of that optimizer to the end of its next.
"""

import os
import sys
import weakref
from typing import Any

from .findings import ObserverFindings
from .host_reads import Reads

_KEPT = 1000
"""Steps whose counts are kept."""


class Steps:
    """Follows the optimizers, and ends the script after as many steps as the user asked for."""

    def __init__(self, findings: ObserverFindings, reads: Reads) -> None:
        self._findings, self._reads = findings, reads
        self._wanted = int(os.environ.get("ASSAY_ABSENT_STEPS", "0"))
        self._first: weakref.ref[Any] | None = None
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._before = findings.library.counts()
        self._asked_to_end = 0

    def follow(self) -> None:
        """Register with torch's optimizers."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self._begins)
        register_optimizer_step_post_hook(self._ended)

    def _counts_steps(self, optimizer: Any) -> bool:
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
        return self._first() is optimizer

    def _begins(self, optimizer: Any, *given: Any) -> None:
        if os.getpid() != self._findings.process:
            return
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            self._findings.optimizers += 1
        self._findings.operators.updates()
        # The script ends before the update after the last wanted step, so that its last forward pass counts as well.
        if self._counts_steps(optimizer) and self._wanted and self._findings.step_count >= self._wanted:
            self._end()

    def _ended(self, optimizer: Any, *given: Any) -> None:
        if os.getpid() != self._findings.process:
            return
        self._reads.stepped()
        if not self._counts_steps(optimizer):
            return
        now = self._findings.library.counts()
        nodes = now["graph_nodes"] - self._before["graph_nodes"]
        if len(self._findings.steps) < _KEPT:
            self._findings.steps.append({name: now[name] - self._before[name] for name in now})
        self._before = now
        self._findings.step_count += 1
        self._findings.collectives.stepped()
        self._findings.operators.stepped(self._findings.step_count, nodes)
        self._findings.write(may_wait=True)

    def _end(self) -> None:
        self._findings.ended = {"how": "steps"}
        self._findings.write()
        self._asked_to_end += 1
        if self._asked_to_end > 1:  # the script has caught the first request
            sys.stdout.flush()
            os._exit(0)
        raise SystemExit(0)
