"""What is drawn on a terminal: styles of our own, and texts of records that steer nothing."""

import io
import re

from assay.analysis.comparison import analyse
from assay.records.evidence import Evidence
from assay.report.comparison.row_table import print_comparison
from assay.report.kit.blocks import legible_console
from support.comparisons import record

STEERING = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\x9b31m"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def drawn(width: int) -> str:
    """A comparison on a terminal with colours; texts of one treatment hold steering characters."""
    stream = io.StringIO()
    evidence = (Evidence(optimization=STEERING, observed=STEERING, verdict=True),)
    said = record(changes={"sdpa_attention": {"reason": STEERING, "evidence": evidence}})
    options = {"file": stream, "width": width, "force_terminal": True, "color_system": "standard"}
    print_comparison(analyse(said), legible_console(**options))
    return stream.getvalue()


def test_texts_of_a_record_do_not_steer_and_styles_stay() -> None:
    for width in (80, 200):
        text = drawn(width)
        assert "\x1b[32m" in text, "what is better is green"
        plain = STYLE.sub("", text)
        assert "✓ �[2J" in plain
        assert all(one.isprintable() or one == "\n" for one in plain)
