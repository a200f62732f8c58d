"""Steps beside a lock as files for other programs: JUnit's XML for a server of builds, Markdown for a summary."""

from xml.etree import ElementTree

from assay.launch.gate import GateAnswer
from assay.report.gate import GateView, changed_blocks, headline
from assay.report.kit.blocks import Facts, Table, plain_text


def junit_text(answer: GateAnswer) -> str:
    """Return the checks as JUnit's XML: a test for each step and device, whose failure has the tables as text."""
    failed = sum(map(answer.fails, answer.checks))
    suite = ElementTree.Element(
        "testsuite", name="assay gate", tests=str(len(answer.checks)), failures=str(failed), errors="0"
    )
    for check in answer.checks:
        case = ElementTree.SubElement(suite, "testcase", classname=check.now.step, name=check.now.device)
        if answer.fails(check):
            failure = ElementTree.SubElement(case, "failure", message=headline(answer, check))
            failure.text = plain_text(changed_blocks(check))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def failure_text(answer: GateAnswer) -> str:
    """Return the answer as text for a failed test."""
    return plain_text(GateView(answer).blocks())


def markdown_text(answer: GateAnswer) -> str:
    """Return the answer as Markdown."""
    lines = ["## Memory gate", ""]
    for block in GateView(answer).blocks():
        if isinstance(block, Table):
            lines += [_row(block.columns), _row("---:" if one in block.right else "---" for one in block.columns)]
            lines += map(_row, block.rows)
        elif isinstance(block, Facts):
            lines += [f"- {label} {text}".replace("  ", " ") for label, text in block.rows]
        else:
            lines.append(block)
        lines.append("")
    return "\n".join(lines)


def _row(texts: object) -> str:
    """Return a row of a table, in which no text ends a cell."""
    cells = (one.replace("|", "\\|").replace("*", "\\*") for one in texts)  # type: ignore[attr-defined]
    return f"| {' | '.join(cells)} |"
