"""Published figures about heads, and what a study computes for each.

None is a target that a run must meet: corpora, annotation and details of the definitions differ,
and each group says how. Heads and layers count from 0.
"""

from dataclasses import dataclass

from headbook.metrics import ids
from headbook.report.numbers.quantities import (
    AtHead,
    AtOffset,
    Correlation,
    HeadsAbove,
    Largest,
    MeanOver,
    Quantity,
    SpreadOver,
    TagsAbove,
)
from headbook.study.summaries.columns import HeadColumn
from headbook.terms import View


@dataclass(frozen=True)
class Published:
    """A figure of a paper.

    Attributes:
        what, value: what it says, and the value as it was printed.
        where: place in the paper.
        quantity: what is computed for it here.
        differs: what differs for this figure alone; empty where nothing does.
    """

    what: str
    value: str
    where: str
    quantity: Quantity
    differs: str = ""


@dataclass(frozen=True)
class Group:
    """Figures of one paper about one model, from one run.

    Attributes:
        title, source: of the group; the paper, with its identifier.
        model, names: what the run is told to load, and what it is called on the hub.
        inputs: what stands for the reader's own file in the command.
        differs: what differs between the paper and this site.
        figures: the rows.
        asked: options of the run in place of metrics; or a whole command, where there is no input.
    """

    title: str
    source: str
    model: str
    names: frozenset[str]
    inputs: str
    differs: tuple[str, ...]
    figures: tuple[Published, ...]
    asked: str = ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the figures need, in order."""
        columns = (column for figure in self.figures for column in figure.quantity.columns)
        return tuple(dict.fromkeys(column.metric for column in columns))

    @property
    def command(self) -> str:
        """The command whose site, or whose output, has the numbers."""
        if not self.inputs:
            return self.asked
        asked = self.asked or f"--sample-sentences 2000 --metrics {','.join(self.metrics)}"
        return f"headbook build {self.inputs} --model {self.model} {asked} --out site-{self.model}"


GPT2 = frozenset({"gpt2", "openai-community/gpt2"})
BERT = frozenset({"bert-base-uncased", "google-bert/bert-base-uncased"})

DISTANCE = HeadColumn(ids.ATTENTION_DISTANCE, View.NOSINK, "")
ENTROPY = HeadColumn(ids.ATTENTION_ENTROPY, View.RENORM, "")
ALIGNMENT = HeadColumn(ids.DEPENDENCY_ALIGNMENT, View.NOSINK, "either")
NOUN = HeadColumn(ids.POS_RECEIVED, View.NOSINK, "NOUN")
FIRST = HeadColumn(ids.ATTENTION_TO, View.RAW, "first")
TAGS = "Of the 17 universal tags here, those that the texts have."

VIG = Group(
    title="GPT-2 small on Wikipedia",
    source="Vig & Belinkov (2019), arXiv:1906.04284",
    model="gpt2",
    names=GPT2,
    inputs="YOUR_WIKIPEDIA_SENTENCES.txt",
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
        Published("Attention to the first token, all heads", "57 %", "section 5", MeanOver(FIRST)),
        Published("Attention to it, the highest", "over 97 %", "section 5", Largest(FIRST)),
        Published("Attention to nouns, the highest", "43 %", "section 5", AtHead(NOUN, 9, 0)),
        Published("The same, mean head", "21 %", "section 5", MeanOver(NOUN)),
        Published(
            "Tags that receive from some head twice the attention of the mean head",
            "13 of 16",
            "section 5",
            TagsAbove(ids.POS_RECEIVED, View.NOSINK, 2),
            TAGS,
        ),
        Published(
            "Tags that give in some head twice the attention of the mean head",
            "7 of 16",
            "section 5",
            TagsAbove(ids.POS_GIVEN, View.NOSINK, 2),
            TAGS,
        ),
        Published(
            "Attention along dependencies, the highest of all heads",
            "0.42 (42 %)",
            "section 5",
            AtHead(ALIGNMENT, 4, 11),
        ),
        Published(
            "Attention variability of the same head, the lowest of all",
            "0.004 (0.4 %)",
            "section 5",
            AtHead(HeadColumn(ids.VARIABILITY, View.NOSINK, ""), 4, 11),
            "Here on at most 2,000 sentences.",
        ),
        Published("Longest mean distance", "14.2 tokens", "section 5", AtHead(DISTANCE, 5, 1)),
        Published("Entropy of the same head", "0.41", "section 5", AtHead(ENTROPY, 5, 1)),
        Published("Spread of the mean distance", "3.6 tokens", "section 5", SpreadOver(DISTANCE)),
        Published("Distance and entropy", "r = 0.61", "section 5", Correlation(DISTANCE, ENTROPY)),
        Published(
            "Distance and attention along dependencies",
            "r = −0.73",
            "section 5",
            Correlation(DISTANCE, ALIGNMENT),
        ),
    ),
)

CLARK = Group(
    title="BERT-base on Wikipedia",
    source="Clark et al. (2019), arXiv:1906.04341",
    model="bert-base-uncased",
    names=BERT,
    inputs="YOUR_WIKIPEDIA_SENTENCES.txt",
    differs=(
        "Texts: 1,000 segments of Wikipedia of at most 128 tokens, two paragraphs each, so with "
        "two [SEP]; here one text with one [SEP].",
        "The paper averages documents' means and counts special tokens as queries, too; here, sums "
        "over all texts are divided, and special tokens count as keys only.",
        "Whether the model was cased or uncased is not clear from the paper; its scripts take the "
        "uncased one.",
    ),
    figures=(
        Published(
            "Attention to [SEP] in layers 5 to 9 (6 to 10 in the paper)",
            "over half",
            "section 3",
            MeanOver(HeadColumn(ids.ATTENTION_TO, View.RAW, "separator"), (5, 6, 7, 8, 9)),
        ),
        Published(
            "Heads that give most of their attention to the previous token",
            "4",
            "section 3.1",
            HeadsAbove(HeadColumn(ids.ATTENTION_TO, View.RAW, "previous"), 0.5),
        ),
        Published(
            "Heads that give most of it to the next token",
            "5",
            "section 3.1",
            HeadsAbove(HeadColumn(ids.ATTENTION_TO, View.RAW, "next"), 0.5),
        ),
    ),
)


def _found(relation: str) -> HeadColumn:
    return HeadColumn(ids.RELATION_ACCURACY, View.NOSINK, f"{relation}:to_head")


RELATIONS = Group(
    title="BERT-base on a treebank",
    source="Clark et al. (2019), arXiv:1906.04341",
    model="bert-base-uncased",
    names=BERT,
    inputs="YOUR_TREEBANK.conllu",
    differs=(
        "Texts and trees: the Penn Treebank's development set in Stanford Dependencies; here, the "
        "study's trees in Universal Dependencies. Numbers do not compare across the two. dobj, "
        "pobj, poss and auxpass are taken as obj, case, nmod:poss and aux:pass; pobj hangs the "
        "object on its preposition, case the preposition on its object.",
        "Published heads were chosen among 144 heads and two directions on the very sentences on "
        "which they are reported, offsets among −3 to +2; here the head is the published one.",
        "The paper takes the mean over a word's subword tokens as the attention from the word, as "
        "does this site; the released code takes the first one, and gives a word before 's what "
        "the 's predicts.",
    ),
    figures=(
        Published(
            "det: accuracy, dependent → head", "94.3 %", "table 1", AtHead(_found("det"), 7, 10)
        ),
        Published(
            "The same with the best fixed offset", "51.7 % (+1)", "table 1", AtOffset(_found("det"))
        ),
        Published(
            "dobj: accuracy, dependent → head",
            "86.8 %",
            "table 1",
            AtHead(_found("obj"), 7, 9),
        ),
        Published(
            "The same with the best fixed offset",
            "40.0 % (−2)",
            "table 1",
            AtOffset(_found("obj")),
        ),
        Published(
            "pobj: accuracy, preposition → object",
            "76.3 %",
            "table 1",
            AtHead(_found("case"), 8, 5),
        ),
        Published(
            "poss: accuracy, dependent → head",
            "80.5 %",
            "table 1",
            AtHead(_found("nmod:poss"), 6, 5),
        ),
        Published(
            "auxpass: accuracy, dependent → head",
            "94.1 %",
            "the authors' notebook; table 1 prints 82.5 %, which there is the offset's",
            AtHead(_found("aux:pass"), 3, 9),
        ),
    ),
)

GROUPS = (VIG, CLARK, RELATIONS)
