"""The devices on which the step of a question fits: this machine, and every absent device.

The answer knows one of them. The others need a step on another kind of device, whose allocator is simulated request by
request. So the page fetches them after the answer, and they are kept.
"""

from dataclasses import replace
from functools import lru_cache

from assay.config.home import Home
from assay.dashboard.whatif.answer import answer_at, fullest
from assay.dashboard.whatif.fits import WhatIfFit, fit_here, fits, need_on_gpu
from assay.dashboard.whatif.places import KnownMachines, absent
from assay.dashboard.whatif.question import HERE, WhatIfQuestion
from assay.errors import UsageError
from assay.hardware import Machine
from assay.hardware.devices import DEVICES

_KEPT = 32
"""Answers that are kept."""
_REFERENCE = "a100"
"""Device whose ledger serves all absent devices."""


def fitting(question: WhatIfQuestion, home: Home) -> tuple[WhatIfFit, ...]:
    """Return the devices for a question, or the reasons why a fit is not known; none if the step is not predicted."""
    return _fitting(question, KnownMachines.of(question, home))


@lru_cache(maxsize=_KEPT)
def _fitting(question: WhatIfQuestion, places: KnownMachines) -> tuple[WhatIfFit, ...]:
    known = answer_at(question, places).predicted
    if known is None:
        return ()
    local, away = question.device == HERE, replace(question, device=_REFERENCE)
    here = () if question.gpus > 1 else (known.fit if local else _here(question, places.here),)
    try:
        found = fullest(away, absent(_REFERENCE)) if local else known.found
        need = need_on_gpu(found) if local else (known.fit.need, known.fit.why_not)
        return (*here, *fits(found, need))
    except UsageError as reason:
        return (*here, WhatIfFit("a GPU", DEVICES[_REFERENCE].memory_bytes, None, str(reason)))


def _here(question: WhatIfQuestion, here: Machine) -> WhatIfFit:
    try:
        return fit_here(fullest(replace(question, device=HERE), here))
    except UsageError as reason:
        return WhatIfFit("this machine", here.memory_bytes, None, str(reason))
