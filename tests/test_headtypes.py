"""Every type of head from maps made by hand, its border, and the types of a random model."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import treebank
from headbook.collection.collect import collect
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.report.numbers.headtypes import Rest, head_type, head_types
from headbook.report.numbers.results import results
from headbook.report.numbers.typeshares import Shares, shares_by
from headbook.study.study import Study
from headbook.terms import View
from test_metric_laws import values
from views import Marks, views_of

N = 24  # tokens; the first and the last are special
Map = NDArray[np.float64]
EVEN = np.full((N, N), 1 / N)


def at(offset: int, share: float = 1.0) -> Map:
    """So much at one offset, the rest even over words; at the ends on the nearest word."""
    found = np.zeros((N, N))
    found[:, 1:-1] = (1 - share) / (N - 2)
    for i in range(N):
        found[i, min(max(i + offset, 1), N - 2)] += share
    return found


def to(key: int, share: float = 1.0) -> Map:
    """So much on one key, the rest even over words."""
    found = np.zeros((N, N))
    found[:, 1:-1] = (1 - share) / (N - 2)
    found[:, key] += share
    return found


def with_sink(maps: Map, share: float) -> Map:
    """So much on the first token."""
    found = maps * (1 - share)
    found[:, 0] += share
    return found


def shares(maps: Map, marks: Marks | None = None, *, causal: bool = False) -> Shares:
    """The numbers of one head in one sentence, by the metrics themselves."""
    marks = marks or Marks(N, special=(0, N - 1))
    views = views_of(torch.tensor(maps)[None], marks, causal=causal)

    def ask(metric: str, view: View, label: str) -> float:
        known = all_metrics()[metric]
        assert isinstance(known, HeadMetric)
        return float(values(known, [views[view]])[0, known.labels.index(label)])

    return shares_by(ask, crosses=False)


def name(maps: Map, marks: Marks | None = None) -> str:
    return head_type(shares(maps, marks)).name


@pytest.mark.parametrize(
    ("maps", "wanted"),
    [
        (at(-1), "previous-token"),
        (at(1), "next-token"),
        (at(0), "self"),
        (at(3), "offset +3"),
        (at(-2), "offset −2"),
        (np.mean([at(k) for k in (-2, -1, 0, 1, 2)], axis=0), "local-window"),
        (EVEN, "near-uniform"),
        (to(6), "key-driven (content words)"),
        (with_sink(at(-1), 0.3), "sink (30.0\u202f%) + previous-token"),
        (with_sink(at(0), 0.7), "sink (70.0\u202f%) + self"),
        (with_sink(at(0), 0.2), "self"),
        (to(0), "sink (100.0\u202f%)"),
    ],
)
def test_the_first_rule_that_holds_names_a_head(maps: Map, wanted: str) -> None:
    marks = Marks(N, special=(0, N - 1), tags=["NOUN"] * N)
    assert name(maps, marks) == wanted


def random(seed: int, sharp: float = 4.0) -> Map:
    """Scores of no pattern, in words alone."""
    scores = np.random.default_rng(seed).normal(size=(N, N)) * sharp
    scores[:, [0, N - 1]] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    found: Map = weights / weights.sum(1, keepdims=True)
    return found


def test_a_head_of_no_pattern_is_mixed_and_names_its_two_largest_shares() -> None:
    found = head_type(shares(random(3)))
    assert found.rest is Rest.MIXED
    ranked = sorted(found.shares.parts.values(), reverse=True)
    assert [found.shares.parts[part] for part in found.parts] == ranked[:2]
    assert found.name.startswith("mixed: ")
    assert sum(found.shares.parts.values()) == pytest.approx(1)


def test_a_sink_takes_the_place_of_the_smaller_share() -> None:
    rest = head_type(shares(random(3)))
    some, most = (head_type(shares(with_sink(random(3), share))) for share in (0.4, 0.6))
    assert some.parts == ("sink", rest.parts[0])
    assert most.parts == ("sink",)
    assert most.name == "sink (60.0\u202f%)"


def test_other_occurrences_of_a_token_are_a_type() -> None:
    """Two tokens take turns, eight apart from the ends; each attends to the far ones like it."""
    ids = [i % 2 for i in range(N)]
    maps = np.zeros((N, N))
    for i in range(N):
        same = [j for j in range(1, N - 1) if j != i and ids[j] == ids[i] and abs(i - j) > 3]
        maps[i, same] = 1 / len(same)
    assert name(maps, Marks(N, ids=ids, special=(0, N - 1))) == "same-token"
    assert name(maps) != "same-token"


def test_a_head_keeps_to_its_own_sentence_in_texts_of_several() -> None:
    """Random weights within each half, where distance, evenness and keys explain nothing."""
    maps, n = np.zeros((24, 24)), 24
    scores = np.exp(np.random.default_rng(5).normal(size=(n, n)) * 3)
    part = np.arange(n) > 11
    scores *= part[:, None] == part
    scores[:, [0, 11, 23]] = 0
    maps = scores / scores.sum(1, keepdims=True)
    marks = Marks(n, special=(0, 11, 23), separator=(11, 23))
    found = head_type(shares(maps, marks))
    assert found.rest is Rest.OWN
    assert found.shares.odds == math.inf


def test_the_winning_key_of_a_key_driven_head_has_its_class() -> None:
    tags = ["NOUN"] * N
    tags[6] = "DET"
    marks = Marks(N, special=(0, N - 1), tags=tags)
    for key, wanted in ((1, "first word"), (N - 2, "last word"), (6, "function words")):
        assert name(to(key), marks) == f"key-driven ({wanted})"
    dots = Marks(N, special=(0, N - 1), punctuation=(6,))
    assert name(to(6), dots) == "key-driven (punctuation)"


def test_a_column_of_the_sink_does_not_make_a_head_key_driven() -> None:
    """The fit is of the rows without the sink: half on the sink, half at random."""
    found = head_type(shares(with_sink(random(3), 0.45)))
    assert found.rest is Rest.MIXED


def test_rows_that_give_more_than_nine_tenths_to_the_sink_are_left_out() -> None:
    maps = at(-1)
    maps[12:] = with_sink(at(1), 0.95)[12:]
    found = shares(maps)
    assert found.left_out == pytest.approx(11 / 22)
    assert found.parts["previous"] == pytest.approx(10 / 11)


@pytest.mark.parametrize(
    ("given", "border"),
    [
        (Shares(0.1, {"previous": 0.48, "after": 0.52}), ("previous-token",)),
        (Shares(0.1, {"previous": 0.52, "after": 0.48}), ("mixed: previous token + distant later"
                                                          " tokens",)),
        (Shares(0.1, {"previous": 0.7, "after": 0.3}), ()),
        (Shares(0.26, {"self": 0.9, "after": 0.1}), ("self",)),
        (Shares(0.24, {"self": 0.9, "after": 0.1}), ("sink + self",)),
        (Shares(0.1, {"after": 0.6, "before": 0.4}, entropy=0.75), ("near-uniform",)),
        (Shares(0.1, {"after": 0.6, "before": 0.4}, column=0.16), ("key-driven",)),
    ],
)  # fmt: skip
def test_within_a_tenth_of_a_threshold_the_other_side_is_named(
    given: Shares, border: tuple[str, ...]
) -> None:
    found = head_type(given)
    assert found.border == border
    assert bool(found.near) == bool(border)


def test_thresholds_themselves_belong_to_the_name() -> None:
    assert head_type(Shares(0.5, {"self": 0.5, "after": 0.5})).parts == ("sink", "self")
    assert head_type(Shares(0.0, {"after": 1.0}, entropy=0.8)).rest is Rest.UNIFORM
    assert head_type(Shares(0.0, {"after": 1.0}, column=0.15)).rest is Rest.KEYS
    assert head_type(Shares(0.0, {"after": 1.0}, odds=2.0)).rest is Rest.OWN


@pytest.fixture(scope="module")
def make(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Study]:
    """Studies of models that were never trained."""

    def of(family: str, metrics: Sequence[str]) -> Study:
        folder = tmp_path_factory.mktemp("types")
        pairs = family == "bart"
        write = treebank.write_pairs if pairs else treebank.write_trees
        return collect(
            write(folder / ("a.jsonl" if pairs else "a.conllu")),
            model=str(tiny_folder(family)),
            annotator="none",
            metrics=",".join(metrics),
            sentence_pages="0",
        )

    return of


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_heads_of_random_models_have_types_by_the_same_rules(
    make: Callable[..., Study], family: str
) -> None:
    study = make(family, ("type_shares", "sink_share", "relative_entropy"))
    for stack in results(study).values():
        found = head_types(stack)
        assert len(found) == stack.stack.n_heads * len(stack.stack.attention_layers)
        for each in found.values():
            assert each is not None
            assert 1 <= len(each.parts) <= 2
            if not stack.stack.crosses:
                assert sum(each.shares.parts.values()) == pytest.approx(1, abs=1e-5)


def test_without_the_share_of_the_sink_there_is_no_type(make: Callable[..., Study]) -> None:
    (stack,) = results(make("bert", ("attention_distance",))).values()
    assert set(head_types(stack).values()) == {None}
