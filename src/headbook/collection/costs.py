"""How long the stages of a run may take, from sizes and how fast the model runs, for a bar.

What the model does is counted in bare passes, the rest in seconds of two usual cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headbook.config import Config
from headbook.model.model import Model, word_embedding
from headbook.study.mapsample import SENTENCES
from headbook.terms import Stack

CORPUS, RANDOM, SAMPLE, PAGES = 1.4, 1.5, 1.5, 1.5  # passes, in bare ones
OF_SAMPLE, OF_AGAIN = 2.0, 0.3  # seconds for the sample, first and then
OF_HEAD, AGAIN = 1.5e-5, 5e-6  # seconds for a head and a token of it
LOOKUP = 1.35  # products with the vocabulary, in bare ones
HEAD_PAGE, SENTENCE_PAGE, METRIC_PAGE = 0.04, 0.095, 0.24  # seconds
OTHER_PAGE = 0.013  # seconds for a sentence that is an example of some heads alone
TAKEN = {"off": 0.0, "fast": 80.0, "full": 1900.0}  # bare passes in which heads are taken away
EACH = 3.0  # of them for each head, where all are
FIRST, FIXED = 0.6, 0.8  # what is done once at the beginning, and checks


@dataclass(frozen=True)
class Sizes:
    """What a run is about.

    Attributes:
        tokens: of a sentence, about.
        sentences: in all, and with pages.
        metrics: that have pages.
        spaces: in which states are compared with the vocabulary; 0 where nobody asks.
        twins: by name, what all is measured on once more.
        random: tokens of random sequences.
        parameters: of the network without its vocabulary.
        vocabulary: entries and width.
    """

    tokens: float
    sentences: int
    listed: int
    metrics: int
    spaces: int
    twins: tuple[str, ...]
    random: int
    parameters: int
    vocabulary: tuple[int, int]


def parameters_of(model: Model) -> tuple[int, tuple[int, int]]:
    """Parameters of a network without its vocabulary; entries and width of the latter."""
    weight = word_embedding(model.body)
    entries, width = (0, 0) if weight is None else weight.shape
    return max(1, model.network.num_parameters() - entries * width), (entries, width)


def plan(
    sizes: Sizes, stacks: Mapping[str, Stack], config: Config, speed: float
) -> dict[str, float]:
    """Seconds by stage, in their order.

    Args:
        speed: multiplications and additions a second, in passes of the model.
    """
    heads = sum(len(stack.attention_layers) * stack.n_heads for stack in stacks.values())
    layers = sum(stack.n_layers for stack in stacks.values())
    bare = 2 * sizes.parameters / speed  # of a token
    sampled = min(config.sample_sentences, sizes.sentences) * sizes.tokens
    looked_up = min(sizes.listed + config.vocabulary_sentences, sizes.sentences)
    compared = min(looked_up + SENTENCES, sizes.sentences)
    paged = min(compared + 4 * heads, sizes.sentences)
    entries, width = sizes.vocabulary
    lookup = LOOKUP * 2 * entries * width / speed * (2 * layers + 1) * sizes.spaces
    corpus_sums = CORPUS * bare * sizes.tokens * sizes.sentences + FIRST
    sample, again = (
        once + sampled * (SAMPLE * bare + value * heads)
        for once, value in ((OF_SAMPLE, OF_HEAD), (OF_AGAIN, AGAIN))
    )
    random = RANDOM * bare * sizes.random
    passes = TAKEN[config.importance] + EACH * heads * (config.importance == "full")
    removed = passes * min(config.importance_sentences, sizes.sentences)
    rest = paged - compared  # of which pages show some heads alone
    drawn = heads * HEAD_PAGE + sizes.listed * SENTENCE_PAGE + sizes.metrics * METRIC_PAGE
    others = (paged - sizes.listed) * OTHER_PAGE
    return {
        "corpus": corpus_sums,
        "random sequences": random,
        "sample": sample,
        "sample again": again,
        "sentences": (PAGES * bare * compared + lookup * looked_up) * sizes.tokens + FIXED,
        **({"exemplars": PAGES * bare * rest * sizes.tokens} if rest > 0 else {}),
        **dict.fromkeys(sizes.twins, corpus_sums + random + sample + again),
        "importance": bare * removed * sizes.tokens,
        "pages": drawn + others,
    }
