"""How large a site will be, about, from what is known before a model sees a sentence.

It is to tell a site that fits from one that is far too large, so a factor of `FAR` is near enough;
``tests/test_size.py`` holds it to that. The costs are bytes, measured on sites of one text and of
two, of 8 to 1,024 heads and 5 to 61 metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headbook.config import Config
from headbook.errors import OutputError
from headbook.metrics.base import Metric
from headbook.study import querykeys
from headbook.terms import Side, Stack
from headbook.text.baselines import twins

FAR = 1.5  # times a size: beyond what a prediction is wrong by
SITE = 950_000  # scripts, style, the overview and its like
METRIC, METRIC_STACK = 20_000, 17_000  # a metric's page, and its charts by stack
HEAD, VALUE = 26_000, 2_200  # a head's page; one of its numbers on pages, in tables and charts
TWIN = 0.3  # times that for each model that it is compared with
EXEMPLAR, PAIR = 1_100, 0.7  # on a head's page, and a weight of its map
OTHERS = 3  # exemplars that every head has beside its strongest
SENTENCE, OTHER = 28_000, 11_000  # the page of a sentence with all heads, and of any other
WEIGHT, STATE = 1.0, 400  # of such a sentence: a weight of a head, and a token in a layer
LETTERS = 8 / 7  # letters of scripts' data for a byte
LENGTH = 32  # tokens of a sentence, where none is known


@dataclass(frozen=True)
class Expected:
    """The bytes of a site by what they show.

    Attributes:
        heads, sentences: pages of each.
        parts: bytes of these pages with their numbers, and of the rest.
    """

    heads: int
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
            f"the rest {megabytes['rest']}"
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
    kept = 2 if least else config.exemplars + OTHERS  # of each head
    traced, lengths = (0, lengths[:1]) if least else (config.neuron_sentences, lengths)
    heads = sum(len(stack.attention_layers) * stack.n_heads for stack in stacks)
    known = [n for length in lengths for n in length.values()] or [LENGTH]
    exemplar = EXEMPLAR + PAIR * (sum(known) / len(known)) ** 2
    value = VALUE * (1 + TWIN * len([*twins(config.control, config.control_seeds)]))
    others = max(0, min(sentences - len(lengths), heads * kept))
    parts = {
        "heads": heads * (HEAD + kept * exemplar + value * len(metrics)),
        "sentences": sum(_sentence(stack, length) for length in lengths for stack in stacks)
        + sum(_neurons(stack, length) for length in lengths[:traced] for stack in stacks)
        + SENTENCE * len(lengths)
        + OTHER * others,
        "rest": SITE + len(metrics) * (METRIC + METRIC_STACK * len(stacks)),
    }
    return Expected(heads, len(lengths), parts)


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


def _sentence(stack: Stack, lengths: Mapping[Side, int]) -> float:
    """The weights of all heads of a stack, and its tokens in all layers."""
    n_queries, heads = lengths[stack.queries], len(stack.attention_layers) * stack.n_heads
    return n_queries * (heads * lengths[stack.keys] * WEIGHT + stack.n_layers * STATE)


def _neurons(stack: Stack, lengths: Mapping[Side, int]) -> float:
    """The queries and keys behind its weights, where they are not too many to be kept."""
    size = querykeys.size(stack, lengths[stack.queries], lengths[stack.keys])
    return size * LETTERS if size <= querykeys.MOST_BYTES else 0
