"""A truth from outside: a trained encoder-decoder copies molecules symbol by symbol.

Which head of its cross-attention looks at the symbol that the decoder reads was computed by an
implementation of its own, with numpy alone.
"""

from pathlib import Path

import pytest

import annalog_model
from headbook import collect
from headbook.report.alignment import alignment_table
from headbook.report.results import stack_results
from headbook.schema import Side

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not annalog_model.packed(), reason="annalog, which carries weights, not installed"
    ),
]
# Alignment error rate of heads, the row of a target symbol being the one that reads it.
ERRORS = {(1, 3): 0.104, (1, 1): 0.118, (0, 5): 0.308}
SAME_FORM = {(0, 5): 0.932, (1, 3): 0.905}


@pytest.mark.soak
def test_heads_align_what_the_decoder_reads_as_published(tmp_path: Path) -> None:
    study = collect(
        [annalog_model.write_copies(tmp_path / "copies.tsv")],
        model=str(annalog_model.write(tmp_path / "annalog")),
        metrics="attention_distance",
        annotator="none",
        target_annotator="none",
        language="none",
        target_language="none",
        importance="off",
        circuits="off",
        sentence_pages="10",
    )
    assert not study.manifest.failed
    assert study.manifest.model.missing == ()
    assert study.manifest.model.unexpected == ()
    assert study.manifest.count(Side.TARGET, "special") == len(annalog_model.DRUGS)
    assert study.manifest.count(Side.SOURCE, "special") == 2 * len(annalog_model.DRUGS)
    table = alignment_table(stack_results(study)).set_index(["measure", "layer", "head"])["value"]
    for measure, numbers in (("aer", ERRORS), ("same_form", SAME_FORM)):
        for head, number in numbers.items():
            assert table[measure, *head] == pytest.approx(number, abs=1e-3)
