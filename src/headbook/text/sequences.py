"""Random tokens repeated twice: texts on which what a head does with repetition is plain to see."""

from collections.abc import Iterator

import numpy as np

from headbook.inputs import Sentence
from headbook.terms import Side
from headbook.text.encode import Encoder, special_ids, start_token
from headbook.text.tokens import Encoded

SEQUENCES = 50
PERIOD = 50  # tokens that are repeated


def random_sequences(encoder: Encoder, seed: int) -> Iterator[Encoded]:
    """Seeded sequences of ordinary tokens, no token twice, each repeated once.

    What the tokenizer puts around a text stands around the whole. Where the model takes fewer
    tokens, or has fewer ordinary ones, the sequences are shorter. Pairs get two of their own.
    """
    tokenizer, draw = encoder.model.tokenizer, np.random.default_rng(seed)
    special = {*special_ids(tokenizer), *tokenizer.all_special_ids}
    ordinary = np.array([i for i in range(len(tokenizer)) if i not in special])
    sample = tokenizer("a")["input_ids"]
    inside = [place for place, token in enumerate(sample) if token not in special]
    before, after = sample[: inside[0]], sample[inside[-1] + 1 :]
    room = (encoder.limit - len(before) - len(after) - 1) // 2
    period = max(min(PERIOD, room, len(ordinary)), 1)
    for index in range(SEQUENCES):
        drawn = [draw.choice(ordinary, period, replace=False).tolist() * 2 for _ in Side]
        tokens = {Side.SOURCE: encoder.of_ids([*before, *drawn[0], *after])}
        if encoder.model.config.is_encoder_decoder:
            tokens[Side.TARGET] = encoder.of_ids([start_token(encoder.model), *drawn[1]])
        yield Encoded(Sentence(index, id="", text=""), tokens)
