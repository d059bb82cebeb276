"""A layer as a metric sees it, made by hand instead of by a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from headbook.attention.maps import AttentionMaps
from headbook.attention.masks import BatchMask, ViewMask
from headbook.attention.views import LayerAttention, layer_views
from headbook.inputs import NO_HEAD, Region, Word
from headbook.metrics.examples import Example
from headbook.model.attention_hook import AttentionCall
from headbook.model.output_projection import OutputProjection
from headbook.schema import PAIR_REGIONS, AnnotationScheme, AttentionStack, Side, SinkView
from headbook.text.batch import PaddedTexts
from headbook.text.tokens import TokenizedText


@dataclass(frozen=True)
class Marks:
    """What is known of the tokens of one text; every list is by token, empty for "nothing".

    ``regions``: text of a pair, 0 or 1; 2 outside both. Without ``sentences``.
    """

    n: int
    ids: Sequence[int] = ()
    special: Sequence[int] = ()
    separator: Sequence[int] = ()
    punctuation: Sequence[int] = ()
    word: Sequence[int] = ()
    tags: Sequence[str] = ()
    heads: Sequence[int] = ()
    relations: Sequence[str] = ()
    rarest: int = -1
    norms: Sequence[float] = ()
    values: Sequence[Sequence[float]] = ()
    stops: Sequence[int] = ()
    sentences: Sequence[int] = ()
    regions: Sequence[int] = ()

    def tokens(self) -> TokenizedText:
        """Return the text; by default every token that is not special is a word."""
        ordinary = [i for i in range(self.n) if i not in self.special]
        word = self.word or [i if i in ordinary else -1 for i in range(self.n)]
        n_words = max(word) + 1
        words = tuple(
            Word(
                start=0,
                end=0,
                upos=self.tags[w] if self.tags else "",
                head=self.heads[w] if self.heads else NO_HEAD,
                relation=self.relations[w] if self.relations else "dep" if self.heads else "",
            )
            for w in range(n_words)
        )
        return TokenizedText(
            text="",
            pieces=tuple("." if i in self.stops else "" for i in range(self.n)),
            ids=np.array(self.ids or range(self.n), dtype=np.int64),
            spans=np.array(
                [(part, part + 1) for part in self.sentences or self.regions] or [(0, 0)] * self.n
            ),
            regions=tuple(Region(PAIR_REGIONS[k], k, k + 1) for k in sorted({*self.regions} - {2})),
            parts=tuple((part, part + 1) for part in sorted({*self.sentences})),
            special=self._flags(self.special),
            separator=self._flags(self.separator),
            punctuation=self._flags(self.punctuation),
            word=np.array(word, dtype=np.int64),
            words=words,
            rarest=self.rarest,
        )

    def _flags(self, places: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        flags = np.zeros(self.n, dtype=np.bool_)
        flags[list(places)] = True
        return flags


OF_PAIRS = AnnotationScheme(regions=PAIR_REGIONS)
SELF = AttentionStack(
    name="self",
    n_layers=1,
    attention_layers=(0,),
    n_heads=1,
    n_key_heads=1,
    head_width=0,
    causal=False,
    queries=Side.SOURCE,
    keys=Side.SOURCE,
)


def views_of(
    weights: torch.Tensor, queries: Marks, keys: Marks | None = None, *, causal: bool = False
) -> dict[SinkView, LayerAttention]:
    """One sentence in every view.

    Args:
        weights: *Shape:* ``(head, query, key)``.
        keys: the other text, for attention across two.
    """
    other = Side.SOURCE if keys is None else Side.TARGET
    stack = replace(SELF, causal=causal, keys=other)
    device = torch.device("cpu")
    texts = [
        PaddedTexts.of([m.tokens()], device, torch.float64, OF_PAIRS)
        for m in (queries, keys or queries)
    ]
    seen = torch.ones(1, *weights.shape[1:], dtype=torch.bool)
    frame = BatchMask(stack, texts[0], texts[0] if keys is None else texts[1],
                  seen.tril() if causal else seen)  # fmt: skip
    scopes = {view: ViewMask(frame, view) for view in SinkView}
    value, projection = _values(keys or queries, weights.shape[0])
    call = AttentionCall(None, None, None, value, None, weights[None].double(), None, projection)
    return layer_views(scopes, AttentionMaps(scopes[SinkView.NOSINK], call))


def _values(keys: Marks, n_heads: int) -> tuple[torch.Tensor | None, OutputProjection | None]:
    """Values of width 1 that all heads share, and a projection that leaves them as they are."""
    if keys.values:
        return torch.tensor([[keys.values]], dtype=torch.float64), None
    if not keys.norms:
        return None, None
    module = torch.nn.Linear(n_heads, 1, bias=False, dtype=torch.float64)
    torch.nn.init.ones_(module.weight)
    value = torch.tensor(keys.norms, dtype=torch.float64)[None, None, :, None]
    return value, OutputProjection(module)


def example_layer(example: Example, view: SinkView) -> LayerAttention:
    """Return a metric's own example in one of its views."""
    marks = Marks(
        len(example.weights),
        special=example.special,
        separator=example.separator,
        tags=example.tags,
        heads=example.heads,
        relations=example.relations,
        ids=example.ids,
        rarest=example.rarest,
        norms=example.norms,
        values=example.values,
        stops=example.stops,
        sentences=example.sentences,
        regions=example.regions,
    )
    return views_of(torch.tensor([example.weights], dtype=torch.float64), marks)[view]
