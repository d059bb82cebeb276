"""A truth from outside: a trained encoder-decoder copies molecules symbol by symbol.

Which head of its cross-attention looks at the symbol that the decoder reads, and which at the one
that it is about to write, was computed by an implementation of its own, with numpy alone.
"""

from pathlib import Path

import pytest

import annalog_model
from headbook import collect
from headbook.report.alignment import alignment_table
from headbook.report.facts.functions import functions_of
from headbook.report.facts.language.alignment import aligned_heads
from headbook.report.results import stack_results
from headbook.schema import HeadName, Side

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not annalog_model.packed(), reason="annalog, which carries weights, not installed"
    ),
]
COPIES = 24  # of each molecule, so that functions can be told
# Alignment error rates of heads by both rows that belong to a target symbol.
ERRORS = {
    "read": {(1, 3): 0.104, (1, 1): 0.118, (0, 5): 0.308},
    "written": {(2, 2): 0.014, (2, 1): 0.027, (1, 7): 0.086, (2, 5): 0.122},
}
SAME_FORM = {(0, 5): 0.932, (1, 3): 0.905}  # by the row that reads the symbol


@pytest.mark.soak
def test_heads_align_what_the_decoder_reads_and_writes_as_published(tmp_path: Path) -> None:
    study = collect(
        [annalog_model.write_copies(tmp_path / "copies.tsv", COPIES)],
        model=str(annalog_model.write(tmp_path / "annalog")),
        metrics="attention_distance,sink_share,type_shares,relative_entropy",
        annotator="none",
        target_annotator="none",
        language="none",
        target_language="none",
        importance="off",
        circuits="off",
        sentence_pages="all",
    )
    assert not study.manifest.failed
    assert study.manifest.model.missing == ()
    assert study.manifest.model.unexpected == ()
    n_texts = COPIES * len(annalog_model.DRUGS)
    assert study.manifest.count(Side.TARGET, "special") == n_texts
    assert study.manifest.count(Side.SOURCE, "special") == 2 * n_texts
    results = stack_results(study)
    table = alignment_table(results).set_index(["row", "measure", "layer", "head"])["value"]
    for row, errors in ERRORS.items():
        for head, number in errors.items():
            assert table[row, "aer", *head] == pytest.approx(number, abs=1e-3)
    for head, number in SAME_FORM.items():
        assert table["read", "same_form", *head] == pytest.approx(number, abs=1e-3)
    functions = functions_of(results["cross"])
    for row, errors in ERRORS.items():
        for head in errors:
            function = functions[HeadName("cross", *head)]
            assert (function.id, function.column[2]) == ("alignment", row)
    fact = aligned_heads(results["cross"])
    assert fact.holds
    named = {tested.label: (tested.layer, tested.head) for tested in fact.evidence}
    assert named == {"read": (1, 3), "written": (2, 2)}
