"""How large a site will be, from what is known before a model sees a sentence.

The costs are bytes, measured on the site of the sample sentences and on sites of tiny models; see
``tests/test_size.py`` for how near they come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headbook.config import Config
from headbook.errors import OutputError
from headbook.metrics import token_metrics
from headbook.metrics.base import Metric
from headbook.network.controls import twins
from headbook.stored import scores
from headbook.terms import Side, Stack

FRAME = 1_200_000  # scripts, style and the runtime of live charts
ACROSS, ACROSS_METRIC, ACROSS_HEAD = 150_000, 6_000, 8_000  # overview, syntax, patterns, ...
METRIC, METRIC_STACK, METRIC_HEAD = 30_000, 30_000, 800  # a metric's page, figures and live charts
HEAD, HEAD_METRIC = 17_000, 1_100  # a head's page, without exemplars
EXEMPLAR, EXEMPLAR_TOKEN, EXEMPLAR_PAIR = 1_200, 130, 1.4  # on that page, and its map
VALUE = 1_900  # a head and metric in the tables and in what scripts read
SENTENCE, SENTENCE_METRIC = 15_000, 9_000  # a sentence's page and live charts
STATE, STATE_METRIC, STATE_NEAREST = 120, 240, 1_400  # a token's state in a layer: page and tables
WEIGHT, LENGTH = 2, 6  # a weight of a listed sentence as number and picture; length of a value
BASE64 = 4 / 3
OTHERS = 3  # exemplars that every head has beside its strongest
FAR = 1.5  # times a limit: beyond what a prediction is wrong by
LENGTHS = (32,)  # tokens of a sentence, where none is known


@dataclass(frozen=True)
class Expected:
    """The bytes of a site by what they show.

    Attributes:
        heads, metrics, sentences: pages of each.
        parts: bytes of those pages and their data, and of the rest.
    """

    heads: int
    metrics: int
    sentences: int
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """Bytes of the whole site."""
        return sum(self.parts.values())

    def said(self) -> str:
        """One line for readers."""
        shown = {name: f"{size / 1e6:.1f}" for name, size in self.parts.items()}
        return (
            f"the site will take about {self.total / 1e6:,.0f} MB: "
            f"{self.heads:,} head pages {shown['heads']}, "
            f"{self.sentences:,} sentence pages {shown['sentences']}, "
            f"{self.metrics:,} metric pages {shown['metrics']}, the rest {shown['rest']}"
        )


def expected(
    stacks: Sequence[Stack],
    metrics: Sequence[Metric],
    config: Config,
    lengths: Sequence[Mapping[Side, int]],
    *,
    least: bool = False,
) -> Expected:
    """Predict a site.

    Args:
        stacks: of the model.
        metrics: that are computed.
        config: what is asked for.
        lengths: tokens of each listed sentence by side.
        least: with the least detail that `headbook.writing.detail` can leave.
    """
    traced = lengths[: 0 if least else config.neuron_sentences]
    shown, lengths = config.exemplars + OTHERS, lengths[:1] if least else lengths
    heads = sum(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    amount, compared = len(metrics), [*twins(config.control, config.control_seeds)]
    usual = [n for each in lengths for n in each.values()] or LENGTHS
    mean = sum(usual) / len(usual)
    exemplar = EXEMPLAR + EXEMPLAR_TOKEN * mean + EXEMPLAR_PAIR * mean**2
    page = HEAD + HEAD_METRIC * amount + (2 if least else shown) * exemplar  # of each ranking one
    told = len(token_metrics(metrics))
    return Expected(
        heads,
        amount,
        len(lengths),
        {
            "heads": heads * (page + VALUE * amount * (1 + len(compared))),
            "sentences": sum(_sentence(stacks, told, each) for each in lengths)
            + sum(_neurons(stacks, each) for each in traced),
            "metrics": amount * (METRIC + METRIC_STACK * len(stacks) + METRIC_HEAD * heads),
            "rest": FRAME + ACROSS + ACROSS_METRIC * amount + ACROSS_HEAD * heads,
        },
    )


def check_limit(least: Expected, most: float | None) -> None:
    """Refuse a limit that is far below what a site takes with the least detail.

    Args:
        most: bytes; None: no limit.

    Raises:
        OutputError: the limit cannot be met.
    """
    if most is not None and least.total > FAR * most:
        raise OutputError(
            f"--max-site-size: {most / 1e6:,.1f} MB came; expected about "
            f"{least.total / 1e6:,.1f} MB or more, which this site will take with the least detail"
        )


def _sentence(stacks: Sequence[Stack], metrics: int, lengths: Mapping[Side, int]) -> float:
    size: float = SENTENCE
    for stack in stacks:
        heads = len(stack.attention_layers) * stack.n_heads
        n_queries, n_keys = lengths[stack.queries], lengths[stack.keys]
        states = n_queries * stack.n_layers
        size += SENTENCE_METRIC * metrics + states * (
            STATE + STATE_METRIC * metrics + STATE_NEAREST * (metrics > 0)
        )
        size += heads * (n_queries * n_keys * WEIGHT + n_keys * LENGTH)
    return size


def _neurons(stacks: Sequence[Stack], lengths: Mapping[Side, int]) -> float:
    sizes = [scores.size(stack, lengths[stack.queries], lengths[stack.keys]) for stack in stacks]
    return sum(size * BASE64 for size in sizes if size <= scores.MOST_BYTES)
