"""Every type of head from maps made by hand, its border, and the types of a random model."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tiny
import treebank
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.metrics.patterns.type_shares import PARTS
from headbook.pages.head import head_pages
from headbook.pages.overview_parts.wall import wall_of
from headbook.report.facts.groups import head_groups
from headbook.report.head_facts import head_facts
from headbook.report.head_types import (
    NO_SHARE,
    OffSinkType,
    Share,
    TypeShares,
    head_type,
    head_types,
    shares_by,
)
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.schema import SinkView
from headbook.study.study import Study
from layers import Marks, views_of
from map_results import Mapped, even
from metric_values import values
from untrained_models import LENGTHS, sentences_of, untrained

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


def shares(maps: Map, marks: Marks | None = None, *, causal: bool = False) -> TypeShares:
    """The numbers of one head in one sentence, by the metrics themselves."""
    sentence = Mapped(torch.tensor(maps)[None], marks or AROUND)
    (found,) = shares_of_heads([sentence], causal=causal)
    return found


AROUND = Marks(N, special=(0, N - 1))


def shares_of_heads(sentences: Sequence[Mapped], *, causal: bool = False) -> Iterator[TypeShares]:
    """Yield the numbers of each head, by the metrics themselves."""
    views = [views_of(*each, causal=causal) for each in sentences]
    control = [views_of(even(each.maps, causal=causal), *each[1:], causal=causal)
               for each in sentences]  # fmt: skip

    @cache
    def numbers(metric: str, view: SinkView) -> torch.Tensor:
        return values(known(metric), [each[view] for each in views])

    def known(metric: str) -> HeadMetric:
        found = all_metrics()[metric]
        assert isinstance(found, HeadMetric)
        return found

    sinks = numbers("sink_share", SinkView.RAW)[:, 0]
    chance = float(values(known("sink_share"), [each[SinkView.RAW] for each in control])[0, 0])
    for head, sink in enumerate(sinks.tolist()):

        def ask(metric: str, view: SinkView, label: str, head: int = head) -> float:
            return float(numbers(metric, view)[head, known(metric).labels.index(label)])

        yield shares_by(ask, Share(sink, chance), crosses=sentences[0].keys is not None)


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
        (with_sink(at(-1), 0.35), "sink (35.0\u202f%) + previous-token"),
        (with_sink(at(-1), 0.3), "previous-token"),  # two of 24 keys: 23.6 % corrected
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
    assert found.rest is OffSinkType.MIXED
    parts = found.shares.parts
    ranked = sorted((each.corrected for each in parts.values()), reverse=True)
    assert [parts[part].corrected for part in found.parts] == ranked[:2]
    assert ranked[1] > 0
    assert found.name.startswith("mixed: ")
    assert sum(each.value for each in parts.values()) == pytest.approx(1)
    assert sum(each.even for each in parts.values()) == pytest.approx(1)


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
    assert found.rest is OffSinkType.OWN
    assert found.shares.odds == math.inf


def test_the_winning_key_of_a_key_driven_head_has_its_class() -> None:
    tags = ["NOUN"] * N
    tags[6] = "DET"
    marks = Marks(N, special=(0, N - 1), tags=tags)
    assert name(to(6), marks) == "key-driven (function words)"
    # The first and the last word are at the farthest offsets of every query.
    for key, kind in ((1, "first"), (N - 2, "last")):
        found = shares(to(key), marks)
        assert found.keys[kind] == 1
        assert found.key == pytest.approx(0, abs=1e-6)
    dots = Marks(N, special=(0, N - 1), punctuation=(6,))
    assert name(to(6), dots) == "key-driven (punctuation)"


def test_a_column_of_the_sink_does_not_make_a_head_key_driven() -> None:
    """The fit is of the rows without the sink: half on the sink, half at random."""
    found = head_type(shares(with_sink(random(3), 0.45)))
    assert found.rest is OffSinkType.MIXED


def test_rows_that_give_more_than_nine_tenths_to_the_sink_are_left_out() -> None:
    maps = at(-1)
    maps[12:] = with_sink(at(1), 0.95)[12:]
    found = shares(maps)
    assert found.left_out == pytest.approx(11 / 22)
    assert found.parts["previous"].value == pytest.approx(10 / 11)
    # Of 22 words, the first has none before it.
    assert found.parts["previous"].even == pytest.approx(10 / 11 / 22)


def given(
    sink: float = 0.0, entropy: float = 0.5, key: float = 0.1, own: Share = NO_SHARE,
    **parts: float,
) -> TypeShares:  # fmt: skip
    """Corrected shares of a head: uniform attention gives nothing to any of them."""
    shares = {part: Share(parts.get(part, 0.0), 0.0) for part in PARTS}
    return TypeShares(Share(sink, 0.0), shares, entropy=entropy, key=key, own_sentence=own)


@pytest.mark.parametrize(
    ("shares", "border"),
    [
        (given(previous=0.48, after=0.52), ("previous-token", "local-window")),
        (given(previous=0.52, after=0.48), ("local-window",)),
        (given(near=0.52, after=0.48), ("mixed: tokens 2–3 away + distant later tokens",)),
        (given(previous=0.7, after=0.3), ()),
        (given(sink=0.26, self=0.9, after=0.1), ("self",)),
        (given(sink=0.24, self=0.9, after=0.1), ("sink + self",)),
        (given(after=0.6, before=0.4, entropy=0.75), ("near-uniform",)),
        (given(after=0.6, before=0.4, key=0.47), ("key-driven",)),
        (given(near=0.48, after=0.52, entropy=0.9), ("local-window",)),
        (given(near=0.52, after=0.48, entropy=0.9), ("near-uniform",)),
        (given(previous=0.9, after=0.1, key=0.53), ("previous-token",)),
        (given(own=Share(0.66, 0.5), before=0.6, after=0.4), ("own-sentence",)),
    ],
)
def test_within_a_tenth_of_a_threshold_the_other_side_is_named(
    shares: TypeShares, border: tuple[str, ...]
) -> None:
    found = head_type(shares)
    assert found.border == border
    assert bool(found.near) == bool(border)


def test_thresholds_themselves_belong_to_the_name() -> None:
    assert head_type(given(sink=0.5, self=0.5, after=0.5)).parts == ("sink", "self")
    assert head_type(given(after=1.0, entropy=0.8)).rest is OffSinkType.UNIFORM
    assert head_type(given(after=1.0, key=0.5)).rest is OffSinkType.KEYS
    assert head_type(given(after=1.0, own=Share(2 / 3, 0.5))).rest is OffSinkType.OWN


def test_rules_hold_in_their_order() -> None:
    """Near-uniform, then key-driven, then one offset before a window."""
    assert head_type(given(previous=0.6, near=0.3, after=0.1)).rest is OffSinkType.PREVIOUS
    assert head_type(given(previous=0.6, after=0.4, key=0.9)).rest is OffSinkType.KEYS
    assert head_type(given(previous=0.6, after=0.4, entropy=0.85)).rest is OffSinkType.PREVIOUS
    assert head_type(given(near=0.7, after=0.3, entropy=0.84)).rest is OffSinkType.WINDOW
    assert head_type(given(near=0.4, after=0.6, entropy=0.84, key=0.9)).rest is OffSinkType.UNIFORM
    divided = given(after=1.0, entropy=0.85, own=Share(0.95, 0.5))
    assert head_type(divided).rest is OffSinkType.OWN


def test_a_share_is_corrected_for_what_uniform_attention_gives() -> None:
    assert Share(0.6, 0.2).corrected == pytest.approx(0.5)
    assert Share(0.2, 0.2).corrected == 0
    assert Share(0.1, 0.2).corrected < 0
    assert Share(0.97, 0.95).corrected == pytest.approx(0.4)
    assert math.isnan(Share(1.0, 0.96).corrected)
    assert math.isnan(Share(0.5).corrected)


def test_a_share_near_that_of_uniform_attention_decides_nothing() -> None:
    """In sentences of five tokens all other words are within three tokens."""
    short = TypeShares(Share(0.4, 0.4), {"self": Share(0.3, 0.3), "near": Share(0.7, 0.66)},
                   entropy=0.5, key=0.1)  # fmt: skip
    found = head_type(short)
    assert math.isnan(short.window.corrected)
    assert found.rest is OffSinkType.MIXED
    assert found.parts == ("near",)
    assert head_type(TypeShares(Share(0.99, 0.96), short.parts, entropy=0.5)).some_sink is False


def test_a_family_and_its_detail_say_what_the_name_says() -> None:
    found = [
        head_type(given(sink=0.8, previous=0.2, before=0.4, after=0.4)),
        head_type(given(sink=0.35, previous=0.2, before=0.4, after=0.4)),
        head_type(given(sink=0.1, previous=0.9, before=0.1)),
        head_type(given(sink=0.2, previous=0.2, before=0.4, after=0.4)),
    ]
    assert [(each.family, each.detail) for each in found] == [
        ("sink", "80.0\u202f%"),
        ("mixed", "sink + distant earlier tokens"),
        ("previous-token", ""),
        ("mixed", "distant earlier tokens + distant later tokens"),
    ]


def test_a_mixed_head_without_a_share_above_uniform_attention_names_none() -> None:
    shares = {"punctuation": Share(0.02, 0.03), "words": Share(0.98, 0.97)}
    found = head_type(TypeShares(Share(0.0, 0.1), shares, entropy=0.5, key=0.1))
    assert (found.name, found.short, found.family, found.detail) == ("mixed", "mixed", "mixed", "")


def test_uniform_attention_in_short_sentences_is_no_window() -> None:
    """Ten tokens, of which uniform attention keeps 69 % within three."""
    maps = np.full((10, 10), 0.1)
    found = head_type(shares(maps, Marks(10, special=(0, 9))))
    assert found.shares.window.value == pytest.approx(found.shares.window.even)
    assert found.shares.window.value > 0.65
    assert found.name == "near-uniform"


def test_a_query_with_a_single_remaining_key_does_not_count() -> None:
    """In causal attention the second token sees the first, which is the sink, and itself."""
    maps = np.tril(np.ones((4, 4)))
    maps = maps / maps.sum(1, keepdims=True)
    found = shares(maps, Marks(4), causal=True)
    # The third sees two keys, the fourth three.
    assert tuple(found.parts["self"]) == pytest.approx((5 / 12, 5 / 12))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10))]
)
@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_untrained_models_have_near_uniform_heads_and_no_sink(family: str, seed: int) -> None:
    model = untrained(family, seed)
    for length in LENGTHS:
        for stack, sentences in sentences_of(model, length, max(48 // length, 1), seed).items():
            causal = stack == "decoder" or family == "gpt2"
            for head, each in enumerate(shares_of_heads(sentences, causal=causal)):
                found = head_type(each)
                assert found.name == "near-uniform", (stack, length, head, each)
                # Of five tokens, causal queries see two to four keys outside the sink.
                assert found.shares.entropy >= (0.9 if length == 5 else 0.95)


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_a_study_of_an_untrained_model_has_near_uniform_heads_alone(
    family: str, tmp_path: Path
) -> None:
    """From sentences to types."""
    drawn = np.random.default_rng(0)
    words = ("the", "cat", "sees", "a", "small", "red", "bird", "in", "garden", "and")
    texts = [" ".join(drawn.choice(words, length)) for length in (3, 5, 8) for _ in range(4)]
    file = tmp_path / "texts.jsonl"
    fields = ("source", "target") if family == "marian" else ("text",)
    file.write_text("\n".join(json.dumps(dict.fromkeys(fields, text)) for text in texts))
    study = collect(
        file,
        model=str(tiny.write(family, tmp_path / family, untrained=True)),
        annotator="none",
        metrics="type_shares,attention_parts,sink_share,relative_entropy",
        sentence_pages="0",
    )
    for stack in stack_results(study).values():
        types = head_types(stack).values()
        assert {kind.short for kind in types if kind is not None} == {"near-uniform"}


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
    study = make(family, ("type_shares", "attention_parts", "sink_share", "relative_entropy"))
    for stack in stack_results(study).values():
        found = head_types(stack)
        assert len(found) == stack.stack.n_heads * len(stack.stack.attention_layers)
        for each in found.values():
            assert each is not None
            assert 1 <= len(each.parts) <= 2
            if not stack.stack.crosses:
                assert sum(p.value for p in each.shares.parts.values()) == pytest.approx(
                    1, abs=1e-5
                )


@pytest.mark.parametrize(
    "metrics",
    ["attention_distance,sink_share", "type_shares,sink_share"],
    ids=["shares", "entropy"],
)
def test_wall_and_head_pages_say_that_types_are_not_measured(
    make: Callable[..., Study], metrics: str
) -> None:
    """Without the shares, and without the entropy, no head is near-uniform, mixed or "distant"."""
    found = stack_results(make("bert", metrics.split(",")))
    (stack,) = found.values()
    displayed, types = wall_of(stack, None, {}, {}), head_types(stack)
    tiles = {(x, y): tile for x, row in displayed.rows for y, tile in enumerate(row)}
    pages = {page.name: page for page in head_pages(stack)}
    missing = [place for place, found in types.items() if found and not found.measured]
    assert missing
    for layer, head in missing:
        tile, text = tiles[layer, head], pages[f"L{layer}·H{head}"].type_text
        assert text.endswith("not measured.")
        assert tile.label.startswith(f"L{layer}·H{head}: ")
        assert tile.label.endswith("not measured")
    if "type_shares" not in metrics:
        assert len(missing) == len(types)
        assert not displayed.legend
        assert {fact.label.word for fact in head_facts(stack)} <= {"sink", "not measured"}
        assert {group.name for group in head_groups(found) if group.type} <= {"sink"}


def test_without_the_share_of_the_sink_there_is_no_type(make: Callable[..., Study]) -> None:
    (stack,) = stack_results(make("bert", ("attention_distance",))).values()
    assert set(head_types(stack).values()) == {None}
