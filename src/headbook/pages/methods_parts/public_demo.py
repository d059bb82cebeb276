"""The computation of the public demo behind *How words travel*, beside that of this study."""

from collections.abc import Iterator, Mapping

import pandas as pd

from headbook.pages.parts.blocks import Question, Row, Table, Text, row
from headbook.report.results import StackResults, study_of
from headbook.report.wording import visible
from headbook.results.number import PLAIN, Number, RowAddress, Unit
from headbook.results.sentence import Marked, say

DEMO = "github.com/danavery/attention-encodings"
WHOLE = Unit("", lambda value: f"{value:,.0f}")
KEYS = ("sentence", "position", "stack", "layer")
UNITS = {"cosine": PLAIN, "nearer": WHOLE, "demo_cosine": PLAIN, "demo_nearer": WHOLE}
STEPS = (
    "Stored weights of values and outputs are multiplied without transposing them, so that its "
    "slices of 64 are no heads; both biases are left out.",
    "States are compared with word embeddings plus the embedding of position 0, whatever the "
    "position of the token, without token types and without the norm that the model applies.",
)


def public_demo_question(results: Mapping[str, StackResults]) -> Question | None:
    """Return one token by both computations, layer by layer; None for models unlike BERT."""
    table = study_of(results).public_demo
    if table.empty:
        return None
    stack, sentence = (table[name].iloc[0] for name in ("stack", "sentence"))
    text = (
        study_of(results)
        .sentence_data.sentences[int(sentence) - 1]
        .texts[results[stack].stack.queries]
    )
    words = [*text.whole_words(causal=False)] or [
        position for position, special in enumerate(text.special) if not special
    ]
    if not words:
        return None
    rows = table[table["position"] == words[0]].sort_values("layer")
    caption = say(
        "{token} in {noun} {number}, after the attention of each layer",
        token=Marked(visible(text.pieces[words[0]]), "bdi"),
        noun=study_of(results).manifest.text_noun, number=int(sentence),
    )  # fmt: skip
    titles = ("layer", "cosine", "nearer tokens", "cosine", "nearer tokens")
    note = "cosine to its own encoding, and vocabulary tokens nearer than its own"
    compared = Table(
        titles, tuple(_rows(rows)), caption, note,
        groups=(("this study", 2), ("public demo", 2)),
    )  # fmt: skip
    source = say(
        "The demo: D. Avery, {address}, commit 400b228, and posts of spring 2025 on RoBERTa.",
        address=Marked(DEMO, "code"),
    )  # fmt: skip
    return Question(
        "public-demo", "The public demo of word travel",
        "How words travel follows a public demo that multiplies by untransposed weights, drops "
        "both biases and takes position 0 for every token: its curves are no target.",
        (*map(Text, STEPS), compared, Text(source)),
        "RoBERTa attention-encodings Avery blog post original encoding rank untransposed bias",
    )  # fmt: skip


def _rows(table: pd.DataFrame) -> Iterator[Row]:
    """Yield each layer with the numbers of both computations; a dash where the study has none."""
    keys = zip(*(table[name].tolist() for name in KEYS), strict=True)
    values = zip(*(table[name].tolist() for name in UNITS), strict=True)
    for key, of_layer in zip(keys, values, strict=True):
        address = RowAddress("public_demo", tuple(zip(KEYS, key, strict=True)))
        units = UNITS.values()
        numbers = (Number(x, unit, address) for x, unit in zip(of_layer, units, strict=True))
        yield row(f"layer {address.key[-1][1]}", *numbers)
