"""Figures that papers print about GPT-2 and BERT, and the quantity that a study computes for each.

No figure is a target that a study must meet: texts, annotation and details of definitions differ,
and each group says how. Heads and layers count from 0. `docs/published-results.md` has the figures
as well, with commands, and the figures that no study computes.
"""

from dataclasses import dataclass

from headbook.metrics import ids
from headbook.report.quantities import (
    AtHead,
    AtOffset,
    AtReplaced,
    Correlation,
    HeadsAbove,
    Largest,
    MeanOver,
    Quantity,
    RankReplaced,
    RemovableShare,
    SpreadOver,
    TagsAbove,
)
from headbook.schema import HeadKey, SinkView
from headbook.study.ablation.effect_tests import TOP_TOKENS_LABEL
from headbook.study.ablation_tables import DIRECT, EFFECT, GRADIENT, REPAIR


@dataclass(frozen=True)
class PublishedFigure:
    """A figure of a paper.

    Attributes:
        what: description of the figure.
        value: value as the paper prints it.
        where: place in the paper.
        quantity: quantity that a study computes for the figure.
        differs: difference that concerns this figure alone; empty if there is none.
    """

    what: str
    value: str
    where: str
    quantity: Quantity
    differs: str = ""


@dataclass(frozen=True)
class PaperFigures:
    """Figures of one paper about one model.

    Attributes:
        title: heading of the group.
        source: the paper, with its identifier.
        names: names of the model on the hub.
        differs: differences between the paper and this site.
        figures: the figures, a row each.
    """

    title: str
    source: str
    names: frozenset[str]
    differs: tuple[str, ...]
    figures: tuple[PublishedFigure, ...]


GPT2 = frozenset({"gpt2", "openai-community/gpt2"})
BERT = frozenset({"bert-base-uncased", "google-bert/bert-base-uncased"})

DISTANCE = HeadKey(ids.ATTENTION_DISTANCE, SinkView.NOSINK, "")
ENTROPY = HeadKey(ids.ATTENTION_ENTROPY, SinkView.RENORM, "")
ALIGNMENT = HeadKey(ids.DEPENDENCY_ALIGNMENT, SinkView.NOSINK, "either")
NOUN = HeadKey(ids.POS_RECEIVED, SinkView.NOSINK, "NOUN")
FIRST = HeadKey(ids.ATTENTION_TO, SinkView.RAW, "first")
TAGS_NOTE = "Of the 17 universal tags here, those that the texts have."

VIG = PaperFigures(
    title="GPT-2 small on Wikipedia",
    source="Vig & Belinkov (2019), arXiv:1906.04284",
    names=GPT2,
    differs=(
        "Texts: 10,000 sentences of English Wikipedia, 27.7 tokens long on average. Distance and "
        "entropy grow with the length of the texts.",
        "Annotation: spaCy 2, its features copied to every subword token of a word; here, "
        "attention to a word is the sum over its subword tokens and from a word the mean, and the "
        "parser is another one.",
        "Attention to the first token is masked without renormalising, as with the sink masked "
        "here; for the entropy the rows are renormalised and those with over 90 % on the first "
        "token dropped. The paper does not name the base of the logarithm.",
    ),
    figures=(
        PublishedFigure(
            "Attention to the first token, all heads", "57 %", "section 5", MeanOver(FIRST)
        ),
        PublishedFigure(
            "Attention to the first token, the highest of all heads",
            "over 97 %",
            "section 5",
            Largest(FIRST),
        ),
        PublishedFigure(
            "Attention to nouns, the highest of all heads", "43 %", "section 5", AtHead(NOUN, 9, 0)
        ),
        PublishedFigure("Attention to nouns, mean head", "21 %", "section 5", MeanOver(NOUN)),
        PublishedFigure(
            "Tags that receive from some head twice the attention of the mean head",
            "13 of 16",
            "section 5",
            TagsAbove(ids.POS_RECEIVED, SinkView.NOSINK, 2),
            TAGS_NOTE,
        ),
        PublishedFigure(
            "Tags that give in some head twice the attention of the mean head",
            "7 of 16",
            "section 5",
            TagsAbove(ids.POS_GIVEN, SinkView.NOSINK, 2),
            TAGS_NOTE,
        ),
        PublishedFigure(
            "Attention along dependencies, the highest of all heads",
            "0.42 (42 %)",
            "section 5",
            AtHead(ALIGNMENT, 4, 11),
        ),
        PublishedFigure(
            "Attention variability of the head with most attention along dependencies, the lowest "
            "of all",
            "0.004 (0.4 %)",
            "section 5",
            AtHead(HeadKey(ids.VARIABILITY, SinkView.NOSINK, ""), 4, 11),
            "Here on at most 2,000 sentences.",
        ),
        PublishedFigure(
            "Longest mean distance of all heads", "14.2 tokens", "section 5", AtHead(DISTANCE, 5, 1)
        ),
        PublishedFigure(
            "Entropy of the head with the longest mean distance",
            "0.41",
            "section 5",
            AtHead(ENTROPY, 5, 1),
        ),
        PublishedFigure(
            "Spread of the mean distance over heads",
            "3.6 tokens",
            "section 5",
            SpreadOver(DISTANCE),
        ),
        PublishedFigure(
            "Distance and entropy", "r = 0.61", "section 5", Correlation(DISTANCE, ENTROPY)
        ),
        PublishedFigure(
            "Distance and attention along dependencies",
            "r = −0.73",
            "section 5",
            Correlation(DISTANCE, ALIGNMENT),
        ),
    ),
)

CLARK = PaperFigures(
    title="BERT-base on Wikipedia",
    source="Clark et al. (2019), arXiv:1906.04341",
    names=BERT,
    differs=(
        "Texts: 1,000 segments of Wikipedia of at most 128 tokens, two paragraphs each, so with "
        "two [SEP]; here one text with one [SEP].",
        "The paper averages documents' means and counts special tokens as queries, too; here, sums "
        "over all texts are divided, and special tokens count as keys only.",
        "Whether the model was cased or uncased is not clear from the paper; its scripts take the "
        "uncased one.",
    ),
    figures=(
        PublishedFigure(
            "Attention to [SEP] in layers 5 to 9 (6 to 10 in the paper)",
            "over half",
            "section 3",
            MeanOver(HeadKey(ids.ATTENTION_TO, SinkView.RAW, "separator"), (5, 6, 7, 8, 9)),
        ),
        PublishedFigure(
            "Heads that give most of their attention to the previous token",
            "4",
            "section 3.1",
            HeadsAbove(HeadKey(ids.ATTENTION_TO, SinkView.RAW, "previous"), 0.5),
        ),
        PublishedFigure(
            "Heads that give most of their attention to the next token",
            "5",
            "section 3.1",
            HeadsAbove(HeadKey(ids.ATTENTION_TO, SinkView.RAW, "next"), 0.5),
        ),
    ),
)


def _accuracy(relation: str) -> HeadKey:
    """Return the column of a relation's accuracy, from the dependent to the head."""
    return HeadKey(ids.RELATION_ACCURACY, SinkView.NOSINK, f"{relation}:to_head")


RELATIONS = PaperFigures(
    title="BERT-base on a treebank",
    source="Clark et al. (2019), arXiv:1906.04341",
    names=BERT,
    differs=(
        "Texts and trees: the Penn Treebank's development set in Stanford Dependencies; here, the "
        "study's trees in Universal Dependencies. Numbers do not compare across the two. dobj, "
        "pobj, poss and auxpass are taken as obj, case, nmod:poss and aux:pass; pobj hangs the "
        "object on its preposition, case the preposition on its object.",
        "Published heads were chosen among 144 heads and two directions on the very sentences on "
        "which they are reported, offsets among −3 to +2; here the head is the published one.",
        "The paper takes the mean over a word's subword tokens as the attention from the word, as "
        "here; the released code takes the first one, and gives a word before 's what "
        "the 's predicts.",
    ),
    figures=(
        PublishedFigure(
            "det: accuracy, dependent → head", "94.3 %", "table 1", AtHead(_accuracy("det"), 7, 10)
        ),
        PublishedFigure(
            "det: accuracy of the best fixed offset, dependent → head",
            "51.7 % (+1)",
            "table 1",
            AtOffset(_accuracy("det")),
        ),
        PublishedFigure(
            "dobj: accuracy, dependent → head",
            "86.8 %",
            "table 1",
            AtHead(_accuracy("obj"), 7, 9),
        ),
        PublishedFigure(
            "dobj: accuracy of the best fixed offset, dependent → head",
            "40.0 % (−2)",
            "table 1",
            AtOffset(_accuracy("obj")),
        ),
        PublishedFigure(
            "pobj: accuracy, preposition → object",
            "76.3 %",
            "table 1",
            AtHead(_accuracy("case"), 8, 5),
        ),
        PublishedFigure(
            "poss: accuracy, dependent → head",
            "80.5 %",
            "table 1",
            AtHead(_accuracy("nmod:poss"), 6, 5),
        ),
        PublishedFigure(
            "auxpass: accuracy, dependent → head",
            "94.1 %",
            "the authors' notebook; table 1 prints 82.5 %, which there is the offset's",
            AtHead(_accuracy("aux:pass"), 3, 9),
        ),
    ),
)

MICHEL = PaperFigures(
    title="How many heads can go, BERT-base",
    source="Michel et al. (2019), arXiv:1905.10650",
    names=BERT,
    differs=(
        "Models: a Transformer for translation (WMT, English–French) and BERT-base fine-tuned on "
        "MNLI. The paper has no figure about GPT-2, nor about BERT before fine-tuning.",
        "Measured: BLEU and accuracy, read off a curve without intervals; here the loss of masked "
        "tokens, with an upper bound of 1\u00a0%.",
        "Heads are replaced by zero there, by their mean here; order by gradient importance in "
        "both, there normalised in each layer.",
    ),
    figures=(
        PublishedFigure(
            "Heads that can be removed together, MNLI",
            "40 %",
            "section 4.2",
            RemovableShare(GRADIENT),
        ),
    ),
)


def _self_repair(layer: int, head: int, printed: str) -> PublishedFigure:
    return PublishedFigure(
        f"L{layer}·H{head}: self-repair over direct effect, its top 2\u00a0% of tokens",
        printed,
        STORED,
        AtReplaced(REPAIR, layer, head, TOP_TOKENS_LABEL),
    )


def _logit_change(layer: int, head: int, printed: str, metric: str = EFFECT) -> PublishedFigure:
    kind = "total" if metric == EFFECT else "direct"
    return PublishedFigure(
        f"L{layer}·H{head}: {kind} change of the true token's logit",
        printed,
        STORED,
        AtReplaced(metric, layer, head),
    )


STORED = "values stored with the authors' code"
SELF_REPAIR = PaperFigures(
    title="Self-repair in GPT-2 small",
    source="Rushing & Nanda (2024), arXiv:2402.15390",
    names=GPT2,
    differs=(
        "Texts: the Pile in prompts of 128 tokens. Expect signs and ranks, not decimals.",
        "A head's output is replaced by that in another text there (resample), by its mean here.",
        "Self-repair: there means of each head's tokens, here sums over sums; ratios of the "
        "authors' means are printed.",
    ),
    figures=(
        PublishedFigure(
            "L4·H11: rank by the fall of the true token's logit", "1", STORED, RankReplaced(4, 11)
        ),
        _logit_change(4, 11, "−0.58"),
        _logit_change(4, 11, "−0.02", DIRECT),
        _logit_change(8, 10, "+0.27"),
        _logit_change(0, 8, "+0.21"),
        _logit_change(10, 7, "+0.13"),
        _logit_change(10, 7, "+0.14", DIRECT),
        _logit_change(11, 10, "+0.07"),
        _self_repair(9, 9, "0.86 (1.47 of 1.70)"),
        _self_repair(7, 10, "0.85 (0.99 of 1.17)"),
        _self_repair(11, 3, "0.41 (0.58 of 1.40)"),
        _self_repair(11, 8, "0.28 (0.44 of 1.55)"),
    ),
)

COPIES = HeadKey(ids.COPY_RATE, SinkView.RAW, "")
SUPPRESSES = HeadKey(ids.COPY_RATE_NEGATIVE, SinkView.RAW, "")
NAME_MOVERS = PaperFigures(
    title="Heads that copy names, GPT-2 small",
    source="Wang et al. (2022), arXiv:2211.00593",
    names=GPT2,
    differs=(
        "Token types: names in 1,000 prompts, each read after the first feed-forward block in its "
        "prompt; here the types of the texts, each alone after layer 0. A head that copies names "
        "need not copy other words.",
        "The five largest logits count in both.",
    ),
    figures=(
        *(
            PublishedFigure(
                f"L{layer}·H{head}, a name mover: copy rate",
                "over 95 %",
                "section 3.1",
                AtHead(COPIES, layer, head),
            )
            for layer, head in ((9, 9), (10, 0), (9, 6))
        ),
        PublishedFigure("Copy rate, mean head", "below 20 %", "section 3.1", MeanOver(COPIES)),
        *(
            PublishedFigure(
                f"L{layer}·H{head}, a negative name mover: copy rate with the sign turned",
                "98 %",
                "section 3.1",
                AtHead(SUPPRESSES, layer, head),
                "The paper prints one figure for both heads.",
            )
            for layer, head in ((10, 7), (11, 10))
        ),
        PublishedFigure(
            "Copy rate with the sign turned, mean head",
            "12 %",
            "section 3.1",
            MeanOver(SUPPRESSES),
        ),
    ),
)

GROUPS = (VIG, CLARK, RELATIONS, MICHEL, SELF_REPAIR, NAME_MOVERS)
