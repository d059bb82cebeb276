"""How much detail a site shows, and what is left out first where it may not be large.

What is least needed goes first. The tables of tokens as CSV, since Parquet holds the same rows; the
numbers behind single weights; maps of all heads on pages of sentences, the last ones first;
exemplars beyond the third; more of those maps; exemplars beyond the first. Heads, metrics and
their numbers stay.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from headbook.errors import OutputError
from headbook.report.wording import sentence_file, written
from headbook.study.study import Study

TOKEN_TABLES = ("tokens", "nearest")  # the largest ones; they grow with every listed sentence
SENTENCES, FEWEST_SENTENCES = 10, 1  # pages that are kept, if possible and in any case
EXEMPLARS, FEWEST_EXEMPLARS = 3, 1  # the same of each ranking of a head
PAGE = 2  # an exemplar takes about so many bytes on its page for each of its data file

Sizes = Mapping[str, int]
Place = TypeVar("Place", bound=tuple[Any, ...])
Each = TypeVar("Each")


@dataclass(frozen=True)
class Detail:
    """What a site shows of a study.

    Attributes:
        tables: whether tables of tokens are there as CSV, too.
        neurons: whether queries and keys are there.
        sentences: how many sentences have pages with all heads; None: all that are listed.
        exemplars: how many each ranking of a head shows; None: all.
    """

    tables: bool = True
    neurons: bool = True
    sentences: int | None = None
    exemplars: int | None = None

    def left_out(self) -> Iterator[str]:
        """What is not there, in words."""
        if not self.tables:
            yield "tables of tokens as CSV (Parquet has the same rows)"
        if not self.neurons:
            yield "queries and keys behind single weights"
        if self.sentences is not None:
            yield f"maps of all heads for sentences beyond the first {self.sentences:,}"
        if self.exemplars is not None:
            yield f"exemplars beyond the first {self.exemplars} of each ranking"

    def of(self, study: Study) -> Study:
        """A study with nothing but what this shows."""
        sentence_data = study.sentence_data
        if not self.neurons:
            sentence_data = replace(sentence_data, queries_and_keys={})
        if self.exemplars is not None:
            kept = tuple(e for e in sentence_data.exemplars if e.rank <= self.exemplars)
            sentence_data = replace(sentence_data, exemplars=kept)
        if self.sentences is not None:
            listed = {s.index for s in sentence_data.listed[: self.sentences]}
            stored = {
                index: replace(sentence, listed=index in listed)
                for index, sentence in sentence_data.sentences.items()
            }
            numbers = {stored[index].number for index in listed}
            sentence_data = replace(
                sentence_data,
                sentences=stored,
                tokens=sentence_data.tokens[sentence_data.tokens["sentence"].isin(numbers)],
                nearest=sentence_data.nearest[sentence_data.nearest["sentence"].isin(numbers)],
                maps=_within(sentence_data.maps, listed),
                norms=_within(sentence_data.norms, listed),
                ends=_within(sentence_data.ends, listed),
                rollouts=_within(sentence_data.rollouts, listed),
                queries_and_keys=_within(sentence_data.queries_and_keys, listed),
            )
        return replace(study, sentence_data=sentence_data)


def _within(found: Mapping[Place, Each], listed: Collection[int]) -> dict[Place, Each]:
    """What is kept of some sentences; the second part of a key is a sentence's index."""
    return {place: each for place, each in found.items() if place[1] in listed}


def fitted(study: Study, most: float, write: Callable[[Detail], Sizes]) -> None:
    """Write a site again with less detail until it fits.

    Args:
        most: bytes that it may have.
        write: writes it anew; returns the bytes of its files by address.

    Raises:
        OutputError: it does not fit with the least detail.
    """
    detail = Detail()
    while sum((sizes := write(detail)).values()) > most:
        less = _less(detail, study, sizes, most)
        if less == detail:
            raise OutputError(
                f"--max-site-size: {written(most)} came; expected at least "
                f"{written(sum(sizes.values()))}, which this site takes with the least detail"
            )
        detail = less


def _less(detail: Detail, study: Study, sizes: Sizes, most: float) -> Detail:
    """Step after step, until enough should be saved; the same if nothing can be."""
    for step in STEPS:
        reduced = detail.of(study)
        detail, saved = step(detail, reduced, sizes, sum(sizes.values()) - most)
        most += saved
        if sum(sizes.values()) <= most:
            break
    return detail


def _no_tables(detail: Detail, reduced: Study, sizes: Sizes, excess: float) -> tuple[Detail, float]:
    del reduced, excess
    saved = sum(
        sizes.get(f"data/{name}.csv{packed}", 0) for name in TOKEN_TABLES for packed in ("", ".gz")
    )
    return (replace(detail, tables=False), saved) if saved else (detail, 0)


def _no_neurons(
    detail: Detail, reduced: Study, sizes: Sizes, excess: float
) -> tuple[Detail, float]:
    del excess
    if not reduced.sentence_data.queries_and_keys:
        return detail, 0
    saved = sum(size for name, size in sizes.items() if name.startswith("data/neurons/"))
    return replace(detail, neurons=False), saved


def _fewer_sentences(
    detail: Detail, reduced: Study, sizes: Sizes, excess: float, *, keep: int
) -> tuple[Detail, float]:
    listed, saved = reduced.sentence_data.listed, 0
    kept = len(listed)
    while kept > keep and saved < excess:
        kept -= 1
        name = sentence_file(listed[kept].number)
        saved += sum(size for file, size in sizes.items() if name in file)
    return (replace(detail, sentences=kept), saved) if kept < len(listed) else (detail, 0)


def _fewer_exemplars(
    detail: Detail, reduced: Study, sizes: Sizes, excess: float, *, keep: int
) -> tuple[Detail, float]:
    del excess
    ranks = [exemplar.rank for exemplar in reduced.sentence_data.exemplars]
    dropped = sum(rank > keep for rank in ranks)
    if not dropped:
        return detail, 0
    data = sum(size for name, size in sizes.items() if name.startswith("data/heads/"))
    return replace(detail, exemplars=keep), data * dropped / len(ranks) * (1 + PAGE)


STEPS = (
    _no_tables,
    _no_neurons,
    partial(_fewer_sentences, keep=SENTENCES),
    partial(_fewer_exemplars, keep=EXEMPLARS),
    partial(_fewer_sentences, keep=FEWEST_SENTENCES),
    partial(_fewer_exemplars, keep=FEWEST_EXEMPLARS),
)
