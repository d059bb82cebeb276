"""The cosine to the input of every token type: one stack over one batch."""

import numpy as np
import torch

from headbook.model.names import Names
from headbook.study.summaries.typesums import STATES, TypeSums
from headbook.terms import Stack, State
from headbook.text.batch import Batch


class TypeTable:
    """Filled state by state.

    Args:
        names: how types are printed.
    """

    def __init__(self, stack: Stack, batch: Batch, names: Names) -> None:
        texts = batch.texts[stack.queries]
        self._chosen = texts.ordinary
        ids = texts.ids[self._chosen].cpu().numpy()
        self._ids, self._place = np.unique(ids, return_inverse=True)
        self._names = tuple(names.of(self._ids))
        rows = self._chosen.nonzero()[:, 0].cpu().numpy()
        once = np.unique(np.stack([rows, self._place]), axis=1)[1]
        self._sentences = np.bincount(once, minlength=len(self._ids))
        shape = (len(self._ids), stack.n_layers, len(STATES))
        self._total, self._squares = np.full(shape, np.nan), np.full(shape, np.nan)

    def add(self, layer: int, state: State, values: torch.Tensor) -> None:
        """Take in one state: ``(sentence, token)``."""
        found = values[self._chosen].double().cpu().numpy()
        size, at = len(self._ids), (slice(None), layer, STATES.index(state))
        self._total[at] = np.bincount(self._place, found, size)
        self._squares[at] = np.bincount(self._place, found * found, size)

    def sums(self) -> TypeSums:
        """What survives."""
        count = np.bincount(self._place, minlength=len(self._ids))
        return TypeSums(self._names, self._ids, count, self._sentences, self._total, self._squares)
