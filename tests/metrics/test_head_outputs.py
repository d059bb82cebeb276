"""What heads write: numbers against plain loops, laws, anchors, and pages."""

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import naive_head_outputs as naive
import tiny
import treebank
from bare_model import Bare, Given, Word, given
from headbook.attention.head_outputs import HeadOutputs
from headbook.metrics import all_metrics
from headbook.pages.metrics.anchors import anchor_blocks
from headbook.pages.outputs import has_outputs
from headbook.report.facts.outputs import ANCHORS, anchor_counts
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.schema import SIMILARITY_LABELS, TOP_PAIR_SHARES, SinkView
from headbook.study.manifest import MissingPart
from headbook.study.study import Study, merge
from headbook.study.sums import token_sums
from headbook.study.sums.token_sums import SHUFFLED_ORDER, TRUE_ORDER
from html_pages import html_of, text_of
from layers import Marks, views_of
from naive_head_outputs import Written, least
from naive_ratios import Estimate, Part, ratio, together
from single_head import Viewed

pytestmark = pytest.mark.usefixtures("of_any_number")

Folder = Callable[[str], Path]
Head = tuple[str, int, int, str]  # stack, layer, head, view
METRICS = ",".join(naive.NAIVE) + ",segmentation,anchor_token,sink_share"
CASES = {"bert": 1e-9, "gpt2": 1e-9, "llama": 1e-5, "bart": 1e-9}  # llama: softmax in float32
PACK = 40  # tokens of a passage
JOINED = {"bert": "[SEP] ", "gpt2": " "}


@pytest.fixture(autouse=True)
def _anchors_of_few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_sums, "MIN_ANCHOR_TEXTS", 2)


def run(folder: Path, file: Path, **options: Any) -> Study:
    """What heads of a tiny model write, in float64."""
    wanted: dict[str, Any] = {"metrics": METRICS, "dtype": "float64", "annotator": "none"}
    wanted |= {"importance": "off", "circuits": "off"}
    return collect(file, model=str(folder), **wanted | options)


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    """The study of a case: sentences one by one."""

    @cache
    def of(name: str) -> Study:
        folder = tmp_path_factory.mktemp("context")
        pairs = tiny.ALL[name].pairs
        write = treebank.write_pairs if pairs else treebank.write_trees
        return run(tiny_folder(name), write(folder / ("a.jsonl" if pairs else "a.conllu")))

    return of


@pytest.fixture(scope="module")
def packed(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    """The same sentences as passages."""

    @cache
    def of(name: str) -> Study:
        file = treebank.write_trees(tmp_path_factory.mktemp("packed") / "a.conllu")
        return run(tiny_folder(name), file, pack=PACK)

    return of


Texts = dict[Head, list[Written]]


def sentences(bare: Bare, sides: Iterator[tuple[tuple[Given, ...], list[int]]]) -> Texts:
    """Every head over every text, in both views."""
    found: Texts = {}
    for texts, parts in sides:
        for stack, layer, head, attention in bare.looks(*texts):
            for view in ("raw", "nosink"):
                written = Written(Viewed(attention, view), parts)
                found.setdefault((stack, layer, head, view), []).append(written)
    return found


def alone(name: str) -> Iterator[tuple[tuple[Given, ...], list[int]]]:
    """The sentences or pairs of a case."""
    if tiny.ALL[name].pairs:
        yield from ((tuple(Given(text, []) for text in pair), []) for pair in treebank.PAIRS)
    else:
        yield from (((given(tree),), []) for tree in treebank.TREES)


def passages(bare: Bare, between: str) -> Iterator[tuple[tuple[Given, ...], list[int]]]:
    """Sentences joined as long as they fit; with the sentence of each word."""
    groups: list[list[Given]] = []
    for tree in treebank.TREES:
        new = given(tree)
        old = groups[-1] if groups else []
        both = between.join(each.text for each in [*old, new])
        if old and len(bare.ids(both)[0]) <= PACK:
            old.append(new)
        else:
            groups.append([new])
    for group in groups:
        text = ""
        words: list[Word] = []
        parts: list[int] = []
        for number, each in enumerate(group):
            start, before = len(text) + len(between) * (number > 0), len(words)
            text += between * (number > 0) + each.text
            for w in each.words:
                head = None if w.head is None else w.head + before
                words.append(w._replace(start=w.start + start, end=w.end + start, head=head))
                parts.append(number)
        yield (Given(text, words),), parts


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_number_of_every_head_equals_plain_loops(
    case: str, study: Callable[[str], Study], tiny_folder: Folder
) -> None:
    bare = Bare.load(tiny_folder(case), pairs=tiny.ALL[case].pairs)
    check(study(case), sentences(bare, alone(case)), CASES[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", JOINED)
def test_every_number_of_passages_equals_plain_loops(
    case: str, packed: Callable[[str], Study], tiny_folder: Folder
) -> None:
    bare = Bare.load(tiny_folder(case))
    texts = sentences(bare, passages(bare, JOINED[case]))
    assert any(text.joined for each in texts.values() for text in each)
    check(packed(case), texts, CASES[case])


def check(of: Study, texts: Texts, tolerance: float) -> None:
    """All numbers of heads, and of layers that are the sum of their heads."""
    known = {head: least(text) for head, text in texts.items()}
    heads = indexed(of.heads, ["metric", "stack", "layer", "head", "view", "label"])
    layers = indexed(of.layers, ["metric", "stack", "layer", "view", "label"])
    for name, naive_metric in naive.NAIVE.items():
        limits = all_metrics()[name].limits
        by_layer: dict[tuple[Any, ...], list[list[Part]]] = {}
        for head, each in texts.items():
            parts = [naive_metric(text, known[head]) for text in each]
            stack, layer, _, view = head
            for label in parts[0]:
                one = [part[label] for part in parts]
                same(heads[(name, *head, label)], one, limits, tolerance, name)
                by_layer.setdefault((stack, layer, view, label), []).append(one)
        for place, found in by_layer.items():
            summed = [together(each) for each in zip(*found, strict=True)]
            same(layers[(name, *place)], summed, limits, tolerance, name)


def indexed(table: pd.DataFrame, names: list[str]) -> dict[tuple[Any, ...], Any]:
    """Rows by what tells them apart."""
    where = zip(*(table[name] for name in names), strict=True)
    return dict(zip(where, table.to_dict("records"), strict=True))


def same(
    row: Any, parts: list[Part], limits: tuple[float, float], tolerance: float, name: str
) -> None:
    """A row is the ratio of these parts, with its interval."""
    # Of odds, what is above the line counts even over nothing.
    if name in {"same_sentence_preference", "repetition_lift"}:
        n, d = sum(p.n for p in parts), sum(p.d for p in parts)
        wanted = n / d if d else np.nan
        np.testing.assert_allclose(row["value"], wanted, rtol=tolerance, atol=tolerance)
        return
    metric = all_metrics()[name]
    number = ratio(parts, limits, metric.spread(metric.headline))
    columns = {"sentences": "n_sentences", "events": "n_observations"}
    for field in Estimate._fields[:-1]:
        within = max(tolerance, 1e-7) if field in {"low", "high"} else tolerance
        np.testing.assert_allclose(
            row[columns.get(field, field)],
            getattr(number, field),
            rtol=within,
            atol=within,
            err_msg=f"{name} {field}",
        )


@pytest.mark.slow
@pytest.mark.parametrize("case", JOINED)
def test_segmentation_equals_nltks_formulas_for_heads_and_for_layers_together(
    case: str, packed: Callable[[str], Study], tiny_folder: Folder
) -> None:
    bare = Bare.load(tiny_folder(case))
    texts = sentences(bare, passages(bare, JOINED[case]))
    limits = (0.0, 1.0)
    groups: dict[tuple[str, int, str], list[list[Written]]] = {}
    rows = {"heads": packed(case).heads, "layers": packed(case).layers}
    seen = 0
    for (stack, layer, head, view), each in texts.items():
        groups.setdefault((stack, layer, view), []).append(each)
        parts = [found for text in each if (found := naive.segmentation([text]))]
        for label in parts[0]:
            place = {"layer": layer, "head": head, "view": view, "label": label}
            row = row_of(rows["heads"], place)
            same(row, [p[label] for p in parts], limits, CASES[case], "segmentation")
            seen += row["value"] > 0
    assert seen > 20
    for (_, layer, view), heads in groups.items():
        parts = [
            found for each in zip(*heads, strict=True) if (found := naive.segmentation([*each]))
        ]
        for label in parts[0]:
            row = row_of(rows["layers"], {"layer": layer, "view": view, "label": label})
            same(row, [p[label] for p in parts], limits, CASES[case], "segmentation")


def row_of(table: pd.DataFrame, place: dict[str, Any]) -> Any:
    """The one row of segmentation at a place."""
    rows = table[table["metric"] == "segmentation"]
    for name, value in place.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize("case", ["bert", "gpt2"])
def test_an_anchor_is_the_token_whose_pairs_are_high_most_often(
    case: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    file = treebank.write_trees(tmp_path / "a.conllu")
    anchors = run(tiny_folder(case), file).corpus_sums.anchors["self"]
    texts = sentences(Bare.load(tiny_folder(case)), alone(case))
    seen = 0
    for number, column in enumerate(anchors.columns):
        for (_, layer, head, view), text in texts.items():
            if view != column.view:
                continue
            wanted = naive.anchor(text, least(text), 2)
            cell = number, TRUE_ORDER, layer, head
            if wanted is None:
                assert anchors.token[cell] == -1
                continue
            found = anchors.low[cell], anchors.lift[cell], anchors.token[cell]
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
            assert str(wanted.token) in anchors.names
            seen += wanted.lift > 0
    assert seen > 5


def test_anchors_are_the_same_whatever_the_batches(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_trees(tmp_path / "a.conllu")
    one, other = (
        run(tiny_folder("bert"), file, **options).corpus_sums.anchors["self"]
        for options in ({}, {"batch_tokens": 1})
    )
    for field in ("token", "lift", "low"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-9)
    # Permuted within their texts, other tokens are at the same pairs.
    assert (one.token[:, TRUE_ORDER] != one.token[:, SHUFFLED_ORDER]).any()


def test_tokens_of_few_texts_are_no_anchors(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_sums, "MIN_ANCHOR_TEXTS", len(treebank.TREES) + 1)
    file = treebank.write_trees(tmp_path / "a.conllu")
    assert not run(tiny_folder("bert"), file).corpus_sums.anchors


@pytest.mark.slow
@pytest.mark.parametrize("case", ["bert", "gpt2"])
def test_of_many_pairs_every_nth_says_where_the_top_shares_begin(
    case: str, tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = treebank.write_trees(tmp_path / "a.conllu")
    monkeypatch.setattr("headbook.passes.head_outputs.MAX_TOKEN_PAIRS", 300)
    table = run(tiny_folder(case), file).heads
    table = table[table["metric"] == "high_pair_distance"]
    rows = indexed(table, ["stack", "layer", "head", "view", "label"])
    bare = Bare.load(tiny_folder(case))
    texts = sentences(bare, alone(case))
    tokens = [text.seen.queries.tokens for text in next(iter(texts.values()))]
    lengths = [sum(not token.special for token in each) for each in tokens]
    step = math.ceil(sum(n * (n - 1) // 2 for n in lengths) / 300)
    assert step > 2
    for head, sentence in texts.items():
        known = least(sentence, step)
        parts = [naive.high_pair_distance(text, known) for text in sentence]
        for label in SIMILARITY_LABELS:
            one = [part[label] for part in parts]
            same(rows[(*head, label)], one, (0, math.inf), CASES[case], "high_pair_distance")


Maps = torch.Tensor


def outputs(weights: Maps, values: Maps, **marks: Any) -> HeadOutputs:
    """Heads over one sentence, each with values of its own."""
    layer = views_of(weights, Marks(weights.shape[-1], values=((0.0,),), **marks))[SinkView.RAW]
    call = layer.maps.call
    object.__setattr__(call, "value", values[None].double())
    return HeadOutputs(layer)


def random_heads(heads: int = 3, n: int = 9, width: int = 4) -> tuple[Maps, Maps]:
    """Attention and values."""
    draw = torch.Generator().manual_seed(1)
    scores = torch.randn(heads, n, n, generator=draw, dtype=torch.float64)
    return (3 * scores).softmax(-1), torch.randn(heads, n, width, generator=draw).double()


def test_similarity_is_symmetric_with_ones_on_the_diagonal() -> None:
    found = outputs(*random_heads()).similarity
    assert found is not None
    torch.testing.assert_close(found, found.mT)
    torch.testing.assert_close(found.diagonal(dim1=-2, dim2=-1), torch.ones(1, 3, 9).double())


def test_a_head_with_the_same_rows_everywhere_writes_the_same() -> None:
    weights, values = random_heads()
    vertical = weights[:, :1].expand_as(weights)
    heads = outputs(vertical, values)
    assert heads.similarity is not None
    torch.testing.assert_close(heads.similarity, torch.ones_like(heads.similarity))
    torch.testing.assert_close(heads.row_similarity, torch.ones_like(heads.row_similarity))
    assert not heads.pairs_away.any()  # nothing is left without the mean
    within, across = heads.cells.by_sentence()
    assert within.high[0, 0].sum(0).tolist() == [36, 36, 36]
    assert not across.n.any()


def test_identity_attention_has_the_similarity_of_the_values() -> None:
    weights, values = random_heads()
    found = outputs(torch.eye(9).double().expand_as(weights), values).similarity
    assert found is not None
    units = values / values.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(found[0], units @ units.mT)


def test_permuted_heads_have_permuted_numbers() -> None:
    weights, values = random_heads()
    order = [2, 0, 1]
    marks = {"sentences": (0, 0, 0, 0, 1, 1, 1, 2, 2), "stops": (3, 6), "ids": (5, 6, 5) * 3}
    one, other = (outputs(weights[heads], values[heads], **marks) for heads in (slice(None), order))
    for name in (*naive.NAIVE, "segmentation"):
        metric: Any = all_metrics()[name]
        a, b = metric.measure(one), metric.measure(other)
        torch.testing.assert_close(a.numerator[:, order], b.numerator)


def test_the_top_share_has_as_many_pairs_as_it_says() -> None:
    heads = outputs(*random_heads(n=20))
    within, _ = heads.cells.by_sentence()
    assert within.high[0, 0].sum(0)[:2].tolist() == [2, 10]  # of 190, rounded up


def test_two_sentences_decide_nothing_for_a_single_one(study: Callable[[str], Study]) -> None:
    of = study("bert")
    what = "Same-sentence preference, Segmentation into sentences and Sentence excess"
    assert what in {gap.what for gap in of.manifest.gaps}
    whys = [gap.why for gap in of.manifest.gaps if gap.key == MissingPart.PASSAGES]
    assert whys == ["every source text counts as one sentence; --pack joins as many as fit"]
    found = stack_results(of)["self"]
    assert not found.has_value("same_sentence_preference", SinkView.RAW, "0.9")
    assert np.isnan(found.heads("segmentation", SinkView.RAW, "f1:even").value).all()


def test_documents_of_one_sentence_give_no_passages_and_the_reason(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    rows = ({"text": treebank.text_of(tree), "document": n} for n, tree in
            enumerate(treebank.TREES))  # fmt: skip
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    of = run(tiny_folder("bert"), file, pack=40)
    whys = [gap.why for gap in of.manifest.gaps if gap.key == MissingPart.PASSAGES]
    assert whys == ["no document has two sentences that fit into 40 tokens together"]


def test_a_model_outside_the_hook_has_rows_only_and_says_so(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    of = run(tiny_folder("xlnet"), treebank.write_trees(tmp_path / "a.conllu"), dtype="float32")
    gaps = {gap.key: gap.what for gap in of.manifest.gaps}
    assert gaps[MissingPart.OUTPUTS] == "head outputs (values)"
    found = stack_results(of)["self"]
    assert found.has_value("row_similarity", SinkView.RAW, "all")
    assert not found.has_value("context_similarity", SinkView.RAW, "all")
    assert not of.corpus_sums.anchors
    assert not has_outputs(stack_results(of))


def test_two_studies_add_their_sums(tiny_folder: Folder, tmp_path: Path) -> None:
    """Pairs above a threshold that each part chose by itself are of no study: they are missing."""
    halves = [
        run(tiny_folder("bert"), treebank.write_trees(tmp_path / f"{n}.conllu", trees))
        for n, trees in enumerate((treebank.TREES[:2], treebank.TREES[2:]))
    ]
    both = merge([halves[0], halves[1]]).corpus_sums.head_outputs["self"]
    parts = [half.corpus_sums.head_outputs["self"] for half in halves]
    of_share = np.array([
        column.label in TOP_PAIR_SHARES or column.metric == "high_pair_distance"
        for column in both.columns
    ])  # fmt: skip
    added = parts[0].heads.sums + parts[1].heads.sums
    np.testing.assert_allclose(both.heads.sums[..., ~of_share], added[..., ~of_share])
    assert of_share.any()
    assert added[..., of_share].any()
    assert not both.heads.sums[..., of_share].any()


def test_anchors_are_counted_by_layer_and_named_by_head(packed: Callable[[str], Study]) -> None:
    results = stack_results(packed("bert"))
    (table,) = anchor_blocks(results["self"])
    assert len(table.rows) == tiny.LAYERS * tiny.HEADS
    for column in (ANCHORS, ANCHORS._replace(view=SinkView.NOSINK)):
        counts = anchor_counts(results["self"], column)
        assert len(counts) == tiny.LAYERS
        assert all(each.different <= each.n_heads for each in counts)


@pytest.mark.slow
def test_the_page_stands_in_the_site(packed: Callable[[str], Study], tmp_path: Path) -> None:
    import headbook

    of = packed("bert")
    of.save(tmp_path / "study")
    again = Study.load(tmp_path / "study")
    assert again.corpus_sums.anchors["self"].names == of.corpus_sums.anchors["self"].names
    headbook.render(again, tmp_path / "site")
    page = text_of(html_of(tmp_path / "site" / "outputs.html"))
    assert "Do head outputs keep to a sentence?" in page
    assert "Ends of sentences found" in page
    anchor = text_of(html_of(tmp_path / "site" / "metrics" / "anchor_token.html"))
    assert "Anchors of heads" in anchor


def test_pairs_are_counted_once() -> None:
    """As many as there are two of all tokens that are not special."""
    heads = outputs(*random_heads(n=7), special=(0, 6))
    assert int(heads.pairs[0, 0].sum()) == len([*combinations(range(5), 2)])


def test_a_run_of_one_token_changes_no_answer(tiny_folder: Folder, tmp_path: Path) -> None:
    """78 times one token in a row are more pairs than the rest of a text has, and none counts."""
    texts = [*map(treebank.text_of, treebank.TREES)]
    studies = [
        run(
            tiny_folder("bert"), write_lines(tmp_path / f"{n}.txt", [*texts, *junk]),
        ).heads
        for n, junk in enumerate(([], [" ".join(["bird"] * 78)]))
    ]  # fmt: skip
    names = ["metric", "layer", "head", "view", "label"]
    for name in (*naive.NAIVE, "segmentation"):
        one, other = (table[table["metric"] == name].set_index(names) for table in studies)
        np.testing.assert_allclose(one["value"], other["value"], rtol=1e-9, err_msg=name)
        assert name in {"segmentation", "sentence_excess", "same_sentence_preference"} or (
            one["value"].notna().any()
        )


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
