from assay.analysis.comparison import analyse
from assay.report.page.compared.predictions import predictions
from support.comparisons import record
from support.drawn import words


def test_predictions_show_each_error_and_the_baseline() -> None:
    text = words(predictions(analyse(record())))
    assert text.count("+0.20 %") == 6
    assert "baseline" in text
    assert "predicted, MiB" in text
