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
from headbook.study import querykeys as scores
from headbook.study.tables import MOST_OF, UNCOMPRESSED
from headbook.terms import Side, Stack
from headbook.text.baselines import twins

FRAME = 1_200_000  # scripts, style and the runtime of live charts
ACROSS, ACROSS_METRIC = 150_000, 6_000  # overview, syntax, tables of layers, ...
ACROSS_HEAD, ACROSS_VALUE = 3_500, 470
METRIC, METRIC_STACK, METRIC_HEAD = 13_000, 19_000, 550  # a metric's page, figures and live charts
HEAD, HEAD_METRIC = 20_000, 500  # a head's page, without exemplars
EXEMPLAR, EXEMPLAR_TOKEN, EXEMPLAR_PAIR = 900, 25, 0.8  # on that page, and its map
VALUE = 1_150  # a head and metric in the tables and in what scripts read
TWIN = 0.5  # times that for each model that it is compared with
SENTENCE, OTHER = 30_000, 12_000  # the page of a sentence with all heads, and of any other
STATE = 230  # a token's state in a layer: Parquet and what scripts read
STATE_METRIC, STATE_NEAREST = 110, 900  # rows of a state as CSV, by table
PACKED = 7  # times as small CSV is with gzip
WEIGHT, LENGTH = 1.3, 4  # a weight of a listed sentence as number and picture; length of a value
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

    def report(self) -> str:
        """One line for readers."""
        megabytes = {name: f"{size / 1e6:.1f}" for name, size in self.parts.items()}
        return (
            f"the site will take about {self.total / 1e6:,.0f} MB: "
            f"{self.heads:,} head pages {megabytes['heads']}, "
            f"{self.sentences:,} sentence pages {megabytes['sentences']}, "
            f"{self.metrics:,} metric pages {megabytes['metrics']}, the rest {megabytes['rest']}"
        )


def expected(
    stacks: Sequence[Stack],
    metrics: Sequence[Metric],
    config: Config,
    lengths: Sequence[Mapping[Side, int]],
    *,
    sentences: int = 0,
    least: bool = False,
) -> Expected:
    """Predict a site.

    Args:
        stacks: of the model.
        metrics: that are computed.
        config: what is asked for.
        lengths: tokens of each listed sentence by side.
        sentences: of the input; those that heads cite have a page, too.
        least: with the least detail that `headbook.site.detail` can leave.
    """
    traced = lengths[: 0 if least else config.neuron_sentences]
    per_head, lengths = config.exemplars + OTHERS, lengths[:1] if least else lengths
    heads = sum(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    amount, compared = len(metrics), [*twins(config.control, config.control_seeds)]
    usual = [n for length in lengths for n in length.values()] or LENGTHS
    mean = sum(usual) / len(usual)
    exemplar = EXEMPLAR + EXEMPLAR_TOKEN * mean + EXEMPLAR_PAIR * mean**2
    page = (
        HEAD + HEAD_METRIC * amount + (2 if least else per_head) * exemplar
    )  # of each ranking one
    n_metrics, states = len(token_metrics(metrics)), _states(stacks, lengths)
    others = max(0, min(sentences - len(lengths), heads * (2 if least else per_head)))
    return Expected(
        heads,
        amount,
        len(lengths),
        {
            "heads": heads * (page + VALUE * amount * (1 + TWIN * len(compared))),
            "sentences": sum(_sentence(stacks, length) for length in lengths)
            + OTHER * others
            + sum(_neurons(stacks, each) for each in traced)
            + STATE * states
            + (0 if least else _as_csv("tokens", STATE_METRIC * n_metrics * states))
            + (0 if least else _as_csv("nearest", STATE_NEAREST * states * (n_metrics > 0))),
            "metrics": amount * (METRIC + METRIC_STACK * len(stacks) + METRIC_HEAD * heads),
            "rest": FRAME
            + ACROSS
            + ACROSS_METRIC * amount
            + (ACROSS_HEAD + ACROSS_VALUE * amount) * heads,
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


def _states(stacks: Sequence[Stack], lengths: Sequence[Mapping[Side, int]]) -> int:
    """Tokens of the listed sentences in all layers."""
    return sum(length[stack.queries] * stack.n_layers for length in lengths for stack in stacks)


def _as_csv(name: str, size: float) -> float:
    """What a table of so many bytes takes as CSV: large ones are compressed or left out."""
    if size > MOST_OF[name]:
        return 0
    return size if size <= UNCOMPRESSED else size / PACKED


def _sentence(stacks: Sequence[Stack], lengths: Mapping[Side, int]) -> float:
    size: float = SENTENCE
    for stack in stacks:
        heads = len(stack.attention_layers) * stack.n_heads
        n_queries, n_keys = lengths[stack.queries], lengths[stack.keys]
        size += heads * (n_queries * n_keys * WEIGHT + n_keys * LENGTH)
    return size


def _neurons(stacks: Sequence[Stack], lengths: Mapping[Side, int]) -> float:
    sizes = [scores.size(stack, lengths[stack.queries], lengths[stack.keys]) for stack in stacks]
    return sum(size * BASE64 for size in sizes if size <= scores.MOST_BYTES)
