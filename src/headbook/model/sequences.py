"""Random tokens repeated twice: texts on which what a head does with repetition is plain to see."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headbook.inputs import Sentence
from headbook.model.encode import Encoder, special_ids, start_token
from headbook.model.model import Model
from headbook.terms import Side
from headbook.text.tokens import Encoded

SEQUENCES = 50
PERIOD = 50  # tokens that are repeated
RANDOM_TOKENS = SEQUENCES * 2 * PERIOD  # of all of them on one side, at most
PROBES = (1, 4, 11, 30, 30, 30)  # tokens of the texts on which the reading of attention is tried
OTHER = re.compile(r"(image|video|vision|audio)\w*_(id|index)$")


def random_sequences(encoder: Encoder, seed: int) -> Iterator[Encoded]:
    """Seeded sequences of ordinary tokens, no token twice, each repeated once.

    What the tokenizer puts around a text stands around the whole. Where the model takes fewer
    tokens, or has fewer ordinary ones, the sequences are shorter. Pairs get two of their own.
    """
    draw = np.random.default_rng(seed)
    ordinary, before, after = _around(encoder.model)
    room = (encoder.limit - len(before) - len(after) - 1) // 2
    period = max(min(PERIOD, room, len(ordinary)), 1)
    for index in range(SEQUENCES):
        drawn = [draw.choice(ordinary, period, replace=False).tolist() * 2 for _ in Side]
        tokens = {Side.SOURCE: encoder.of_ids([*before, *drawn[0], *after])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([start_token(encoder.model), *drawn[1]])
        yield Encoded(Sentence(index, id="", text=""), tokens)


def probes(encoder: Encoder) -> list[Encoded]:
    """Random texts of several lengths, the last three of one length, on both sides of a pair."""
    draw = np.random.default_rng(0)
    ordinary, before, after = _around(encoder.model)
    room = max(encoder.limit - len(before) - len(after) - 1, 1)
    found = []
    for index, wanted in enumerate(PROBES):
        size = min(wanted, room)
        drawn = [draw.choice(ordinary, n).tolist() for n in (size, size // 2 + 1)]
        tokens = {Side.SOURCE: encoder.of_ids([*before, *drawn[0], *after])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([start_token(encoder.model), *drawn[1]])
        found.append(Encoded(Sentence(index, id="", text=""), tokens))
    return found


def _around(model: Model) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Ordinary tokens, and what the tokenizer puts before and after a text."""
    tokenizer, config = model.tokenizer, model.config.to_dict()
    special = {*special_ids(tokenizer), *tokenizer.all_special_ids}
    # Places of pictures and sounds, which are no text either.
    special |= {v for k, v in config.items() if OTHER.search(k) and isinstance(v, int)}
    ordinary = np.array([i for i in range(len(tokenizer)) if i not in special])
    sample = tokenizer("a")["input_ids"]
    own = special_ids(tokenizer)
    inside = [index for index, token in enumerate(sample) if token not in own]
    first, last = (inside[0], inside[-1] + 1) if inside else (len(sample), len(sample))
    return ordinary, sample[:first], sample[last:]
