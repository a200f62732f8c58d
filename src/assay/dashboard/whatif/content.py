"""Content of the view *What if* as plain values: the controls, the answer for scripts, and the parts of its page."""

from collections.abc import Collection
from typing import Any

from assay.config.loading import presets
from assay.config.run import Spec
from assay.dashboard.pages import render_page
from assay.dashboard.whatif.answer import WhatIfAnswer
from assay.dashboard.whatif.places import WhatIfFit, fits_table
from assay.dashboard.whatif.question import ABSENT, COUNTS, HERE, SETTINGS, WhatIfQuestion, commands, value
from assay.dashboard.whatif.recommendation import Recommended
from assay.errors import UsageError
from assay.hardware.devices import DEVICES
from assay.units import format_bytes


def controls(question: WhatIfQuestion) -> dict[str, Any]:
    """Return the menus and numbers of the form with what is chosen."""
    return {
        "presets": presets(),
        "devices": [(HERE, "this machine"), *((name, DEVICES[name].name) for name in ABSENT)],
        "settings": [(name, one.label, one.least, one.most) for name, one in SETTINGS.items()],
        "gpus": range(1, COUNTS["gpus"][1] + 1),
        "most_micro": COUNTS["micro"][1],
        "values": values(question),
    }


def values(question: WhatIfQuestion) -> dict[str, Any]:
    """Return what each control shows, by its name in an address."""
    chosen = {"preset": question.preset, "device": question.device, "gpus": question.gpus, "micro": question.micro}
    bare = WhatIfQuestion(question.preset).run().with_vocabulary()
    numbers = {name: value(bare, name) for name in SETTINGS}
    return {**numbers, **dict(question.changes), **chosen}


def answer_content(found: WhatIfAnswer) -> dict[str, Any]:
    """Return the content of the template of an answer."""
    predicted = found.predicted
    return {
        "refusal": found.refusal,
        "facts": found.facts,
        "parts": None if predicted is None else predicted.parts,
        "commands": commands(found.question) if found.read else (),
    }


def fit_content(rows: Collection[WhatIfFit]) -> dict[str, Any]:
    """Return the content of the template of devices."""
    return {"fits": fits_table(rows) if rows else None}


def fit_values(rows: Collection[WhatIfFit]) -> dict[str, Any]:
    """Return the devices for the page's script."""
    return {"html": render_page("what-if-fit.html", **fit_content(rows))}


def answer_values(found: WhatIfAnswer) -> dict[str, Any]:
    """Return an answer for the page's script: its address, its text, the figure, and the state of every control."""
    return {
        "read": found.read,
        "query": found.question.query,
        "html": render_page("what-if-answer.html", **answer_content(found)),
        "memory": _figure(found),
        "techniques": [
            {"name": one.name, "on": one.on, "fixed": one.fixed, "why_not": one.why_not} for one in found.techniques
        ],
        "stack": _written(found.question),
        "values": values(found.question),
        "summary": found.sentence,
    }


def _figure(found: WhatIfAnswer) -> dict[str, Any] | None:
    """Return the figure of memory with the whole memory of the device that was asked for."""
    if found.predicted is None:
        return None
    place = found.predicted.fit
    whole = {"limit_bytes": place.memory_bytes, "limit": f"{place.device}: {format_bytes(place.memory_bytes)}"}
    return {**found.predicted.memory, **whole}


def recommended_values(found: Recommended, question: WhatIfQuestion) -> dict[str, Any]:
    """Return a recommendation for the page's script: whether its search goes on, and its text."""
    other = found.of is not None and found.of.changes != question.changes
    link = None if found.state == "refused" or found.of is None else _with(question, found.stack)
    content = {"found": found, "other": found.of if other else None, "link": link}
    return {"state": found.state, "html": render_page("what-if-recommendation.html", **content)}


def _with(question: WhatIfQuestion, stack: str) -> str:
    """Return the query of a question with another stack; the reading of it divides the micro-batches from the rest."""
    return WhatIfQuestion(question.preset, question.changes, 1, stack, question.device, question.gpus).query


def _written(question: WhatIfQuestion) -> dict[str, str]:
    """Return each technique of the stack as it is written, by its name; empty if the stack cannot be read."""
    try:
        return {one.name: str(one) for one in Spec.parse_stack(question.stack)} if question.stack else {}
    except (ValueError, UsageError):
        return {}
