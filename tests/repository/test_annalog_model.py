"""A truth from outside: a trained encoder-decoder copies molecules symbol by symbol.

Which head of its cross-attention looks at the symbol that the decoder reads, and which at the one
that it is about to write, was computed by an implementation of its own, with numpy alone.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, MarianMTModel

import annalog_model
from headbook import collect
from headbook.report.alignment import alignment_table
from headbook.report.facts.functions import functions_of
from headbook.report.facts.language.alignment import aligned_heads
from headbook.report.results import stack_results
from headbook.schema import HeadName, Side
from headbook.text.aligned_words import AlignmentRow

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


OPTIONS: dict[str, Any] = {
    "metrics": "attention_distance,sink_share,type_shares,relative_entropy",
    "annotator": "none", "target_annotator": "none", "language": "none",
    "target_language": "none", "importance": "off", "circuits": "off", "sentence_pages": "all",
}  # fmt: skip


@pytest.mark.soak
def test_heads_align_what_the_decoder_reads_and_writes_as_published(tmp_path: Path) -> None:
    study = collect(
        [annalog_model.write_copies(tmp_path / "copies.tsv", COPIES)],
        model=str(annalog_model.write(tmp_path / "annalog")),
        **OPTIONS,
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


def test_what_the_model_writes_itself_is_aligned_by_both_rows(tmp_path: Path) -> None:
    """As in transformers, greedily; a symbol is a word, and case does not count in its form."""
    folder = annalog_model.write(tmp_path / "annalog")
    lines = annalog_model.write_copies(tmp_path / "copies.tsv").read_text().splitlines()[1:]
    sources = [line.split("\t")[0] for line in lines]
    study = collect([{"text": source} for source in sources], model=str(folder), **OPTIONS)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = MarianMTModel.from_pretrained(folder, attn_implementation="eager")
    forms = np.array(
        [token.lower() for token in tokenizer.convert_ids_to_tokens([*range(len(tokenizer))])]
    )
    right, words = dict.fromkeys(AlignmentRow, 0), 0
    for sentence, source in zip(study.sentence_data.listed, sources, strict=True):
        ids = tokenizer(source, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            made = model.generate(input_ids=ids, do_sample=False, num_beams=1, max_new_tokens=64)
            read = made[:, :-1]  # without the end
            attentions = model(input_ids=ids, decoder_input_ids=read, output_attentions=True)
        text = sentence.texts[Side.TARGET]
        assert text.generated
        assert text.text.split() == tokenizer.convert_ids_to_tokens(read[0].tolist())[1:]
        weights = torch.cat(attentions.cross_attentions).numpy()  # (layer, head, query, key)
        weights[..., [0, -1]] = -1  # the start and the end of the source are no words
        best = forms[ids[0].numpy()[weights.argmax(-1)]]
        targets = forms[read[0, 1:].numpy()]
        right[AlignmentRow.READ] += (best[:, :, 1:] == targets).sum(-1)
        right[AlignmentRow.WRITTEN] += (best[:, :, :-1] == targets).sum(-1)
        words += len(targets)
    results = stack_results(study)
    table = alignment_table(results).query("measure == 'same_form'")
    for row, counts in right.items():
        of_row = table[table["row"] == row]
        assert {*of_row["n_observations"]} == {words}
        found = of_row.set_index(["layer", "head"])["value"]
        for place, count in np.ndenumerate(counts):
            assert found[place] == pytest.approx(count / words)
    named = {
        each.label: (each.layer, each.head) for each in aligned_heads(results["cross"]).evidence
    }
    assert named["written"] == (2, 2)
    assert np.max(right[AlignmentRow.WRITTEN]) > 0.95 * words
