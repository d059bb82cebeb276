"""The public demonstration: one sentence as it computes it, beside the model's own activations."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.arithmetic import Floats
from headbook.charts import Figure, trajectories
from headbook.metrics import ids
from headbook.pages.parts.across import across
from headbook.pages.parts.page import Page
from headbook.pages.parts.table import Mark, Row, Table, Words, words
from headbook.pages.parts.text import Token, distinct, running_text
from headbook.pages.widgets.paths import AXES, MOST_TOKENS, token_kind
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import MISSING, number, percent, visible
from headbook.study.sentencedata import AROUND, OWN, PUBLIC, StoredText
from headbook.terms import Side

COMPUTATIONS = {PUBLIC: "as the demonstration computes it", OWN: "the model's own activations"}
MEASURES = {"cosine": "cosine to the token's embedding", "rank": AXES[ids.VOCABULARY_RANK]}
FEWEST = 4  # layers that a story about how steps grow and shrink needs
CLAIMS = (
    (
        "Tokens move away from their embedding early.",
        "The mean cosine falls faster per layer in the first half of the layers than in the rest.",
    ),
    (
        "The rank is stable until a final jump.",
        "The mean of log10(1 + rank) changes more in the last layer than in all layers before.",
    ),
    (
        "Replacement of neighbours speeds up, then slows down.",
        f"Of the {AROUND} nearest vocabulary tokens, most are replaced in a layer that is neither "
        "the first nor the last to replace some.",
    ),
)
CLAIMED = "Whether each holds for this sentence; means over tokens without special tokens."
MEANS = (
    "Means over tokens without special tokens: cosine to the token's embedding, log10(1 + rank), "
    f"and share of the {AROUND} nearest vocabulary tokens kept from the layer before."
)
TOO_FEW = words("– (too few layers)")


class Verdict(NamedTuple):
    """Whether a story holds, with the numbers behind it."""

    holds: bool
    numbers: str


@dataclass(frozen=True, kw_only=True)
class DemonstrationPage(Page):
    """One sentence in two computations.

    Attributes:
        number: of the sentence.
        tokens: the sentence.
        claims: the demonstration's stories, and whether they hold.
        figures: cosine and rank of each token, one figure a computation.
        means: over ordinary tokens, by layer: for each computation mean cosine, mean of
            log10(1 + rank), and share kept.
    """

    template: ClassVar[str] = "demonstration.html"
    number: int
    tokens: tuple[Token, ...]
    claims: Table
    figures: tuple[Figure, ...]
    means: Table


def _there(results: Mapping[str, StackResults]) -> bool:
    """Whether the computation fits the model."""
    return not study_of(results).sentence_data.demonstration.empty


@across("demonstration.html", _there)
def demonstration_page(results: Mapping[str, StackResults]) -> DemonstrationPage:
    """The page of the demonstration."""
    study = study_of(results)
    table = study.sentence_data.demonstration
    sentence_number = int(table["sentence"].min())  # a study of several parts has several
    table = table[table["sentence"] == sentence_number]
    text = study.sentence_data.sentences[sentence_number - 1].texts[Side.SOURCE]
    means = {name: _means(table[table["computation"] == name], text) for name in COMPUTATIONS}
    return DemonstrationPage(
        path="demonstration.html",
        title="A public demonstration",
        description="One sentence as a public demonstration computes the paths of tokens, beside "
        "the model's own activations.",
        number=sentence_number,
        tokens=running_text(text),
        claims=Table(("Claim", *COMPUTATIONS.values()), tuple(_claims([*means.values()])), CLAIMED),
        figures=tuple(_figures(table, text)),
        means=Table(
            ("Layer", *("cosine", "rank", "kept") * len(means)),
            tuple(_rows([*means.values()])),
            MEANS,
            groups=tuple((name, 3) for name in COMPUTATIONS.values()),
        ),
    )


def _means(table: pd.DataFrame, text: StoredText) -> dict[str, Floats]:
    """Means over ordinary tokens by measure; *Shape:* ``(layer,)`` each."""
    special = np.array(text.special)
    ordinary = table[~special[table["position"].to_numpy(int)]]
    ordinary = ordinary.assign(
        value=np.where(
            ordinary["measure"] == "rank", np.log10(1 + ordinary["value"]), ordinary["value"]
        )
    )
    grouped = ordinary.groupby(["measure", "layer"], sort=True)["value"].mean()
    return {name: grouped[name].to_numpy(float) for name in ("cosine", "rank", "kept")}


def _claims(means: list[dict[str, Floats]]) -> Iterator[Row]:
    tests: tuple[Callable[[dict[str, Floats]], Verdict], ...] = (_drift, _jump, _churn)
    for (text, rule), test in zip(CLAIMS, tests, strict=True):
        enough = len(means[0]["cosine"]) >= FEWEST
        cells = (_verdict(test(mean)) if enough else TOO_FEW for mean in means)
        yield Row(words(Mark(text, "b"), " ", Mark(rule, "small")), tuple(cells))


def _verdict(verdict: Verdict) -> Words:
    return words(Mark("holds" if verdict.holds else "does not hold", "b"), f": {verdict.numbers}")


def _drift(means: dict[str, Floats]) -> Verdict:
    cosines = means["cosine"]
    last = len(cosines) - 1
    middle = len(cosines) // 2
    early = (cosines[0] - cosines[middle]) / middle
    late = (cosines[middle] - cosines[last]) / (last - middle)
    text = f"{_change(early)} a layer up to layer {middle}, {_change(late)} after"
    return Verdict(bool(early > late and early > 0), text)


def _change(fall: float) -> str:
    return f"{'falls' if fall >= 0 else 'rises'} by {number(abs(float(fall)))}"


def _jump(means: dict[str, Floats]) -> Verdict:
    steps = np.abs(np.diff(means["rank"]))
    text = f"{number(float(steps[-1]))} in the last layer, {number(float(steps[:-1].sum()))} before"
    return Verdict(bool(steps[-1] > steps[:-1].sum()), text)


def _churn(means: dict[str, Floats]) -> Verdict:
    replaced = 1 - means["kept"][1:]
    most = int(replaced.argmax())
    text = (
        f"{percent(float(replaced[most]))} replaced in layer {most + 1}; "
        f"{percent(float(replaced[0]))} in layer 1, {percent(float(replaced[-1]))} in the last"
    )
    return Verdict(0 < most < len(replaced) - 1, text)


def _figures(table: pd.DataFrame, text: StoredText) -> Iterator[Figure]:
    names = np.array([visible(piece) for piece in distinct(text.pieces)])
    kinds = np.array([*map(token_kind, text.tags, text.special)])
    first_tokens = table[table["position"] < MOST_TOKENS]
    for measure, title in MEASURES.items():
        for computation, named in COMPUTATIONS.items():
            rows = first_tokens[
                (first_tokens["measure"] == measure) & (first_tokens["computation"] == computation)
            ]
            position = rows["position"].to_numpy(int)
            frame = pd.DataFrame(
                {
                    "position": position,
                    "token": names[position],
                    "kind": kinds[position],
                    "step": rows["layer"].astype(str).to_numpy(),
                    "value": rows["value"].to_numpy(float),
                    "computation": named,
                }
            )
            yield trajectories(
                f"demonstration-{measure}-{computation}",
                f"{title.capitalize()}, by layer, of each token: {named}.",
                frame,
                title=title,
                steps=[*map(str, sorted(rows["layer"].unique()))],
                show={"computation": named},
                ranks=measure == "rank",
            )


def _rows(means: list[dict[str, Floats]]) -> Iterator[Row]:
    for layer in range(len(means[0]["cosine"])):
        cells = (
            cell
            for mean in means
            for cell in (
                number(float(mean["cosine"][layer])),
                number(float(mean["rank"][layer])),
                percent(float(mean["kept"][layer])) if layer else MISSING,
            )
        )
        yield Row(f"L{layer}", tuple(cells))
