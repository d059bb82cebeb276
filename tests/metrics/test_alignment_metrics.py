"""Alignments of cross-attention equal what loops over sentences and tokens give."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import kendalltau

import tiny
from bare_model import Bare
from block_parts import every
from headbook.analysis.accumulators import Estimate
from headbook.pages.alignment import alignment_page
from headbook.pages.parts.blocks import Cell, Table
from headbook.report.alignment import alignment_table, alignments, f1, kendall, on_diagonal
from headbook.report.facts.language.alignment import better_row
from headbook.report.results import stack_results
from headbook.results.number import Number
from headbook.results.sentence import Sentence
from headbook.schema import HeadName, Side, heads_of
from headbook.study.study import Study
from headbook.text.aligned_words import (
    AlignedText,
    AlignmentRow,
    aligned_text,
    strongest_sources,
    word_attention,
)
from html_pages import html_of
from naive_ratios import Part, ratio
from sites import Once, Site, make_study
from treebank import PAIRS

pytestmark = pytest.mark.usefixtures("of_any_number")

GOLD = ("0-0 1-1 2?2 4-4", "0-0 1-1 2-2", "", "0-0 9-0")  # the last: a word that is not there
FAMILIES = ("bart", "t5", "marian")


class Head(NamedTuple):
    """One head in one sentence by one row: for each target word its source, by number."""

    sentence: Any
    sources: list[int]
    targets: list[int]
    names: dict[Side, dict[int, str]]
    chosen: dict[int, int]


def exact_maps(study: Study, model: Path) -> dict[int, Any]:
    """Weights of cross-attention as the model returns them, by sentence and layer."""
    bare = Bare.load(model, pairs=True)
    maps = {}
    for sentence in study.sentence_data.listed:
        texts = [sentence.texts[side].text for side in Side]
        output = bare.run(bare.ids(*texts), output_attentions=True)
        maps[sentence.index] = [weights[0].double().numpy() for weights in output.cross_attentions]
    return maps


def words_of(sentence: Any, side: Side) -> dict[int, list[int]]:
    """Tokens of each word, by its number: words of gold links, else those of the annotation."""
    text, tokens = sentence.texts[side], dict[int, list[int]]()
    for token, (start, end) in enumerate(text.spans):
        number = text.words[token]
        if sentence.metadata.get("alignment"):
            number = len(text.text[: start + 1].split()) - 1 if end > start else -1
        elif number < 0:
            number = 1000 + token
        if not text.special[token] and number >= 0:
            tokens.setdefault(number, []).append(token)
    return tokens


def each_sentence(
    study: Study, exact: dict[int, Any], layer: int, head: int, row: str
) -> Iterator[Head]:
    """What a head looks at most, found by looping over its map.

    A word is read in the rows of its tokens, and written in the rows before.
    """
    for index, maps in exact.items():
        sentence = study.sentence_data.sentences[index]
        sources, targets = (words_of(sentence, side) for side in (Side.SOURCE, Side.TARGET))
        names = {
            side: {
                word: sentence.texts[side].text[
                    min(sentence.texts[side].spans[t][0] for t in tokens) :
                    max(sentence.texts[side].spans[t][1] for t in tokens)
                ] or sentence.texts[side].pieces[tokens[0]]
                for word, tokens in words.items()
            }
            for side, words in ((Side.SOURCE, sources), (Side.TARGET, targets))
        }  # fmt: skip
        chosen = {}
        for target, tokens in targets.items():
            rows = [token - (row == "written") for token in tokens]
            weight = {
                source: sum(float(maps[layer][head, r, k]) for r in rows for k in keys) / len(rows)
                for source, keys in sources.items()
            }
            most = max(weight.values(), default=0.0)
            if most > 0:
                chosen[target] = next(s for s in weight if weight[s] > most - 1e-9)
        if sources and targets:
            yield Head(sentence, [*sources], [*targets], names, chosen)


def basic(text: str) -> str:
    letters = unicodedata.normalize("NFD", text.strip())
    return "".join(c for c in letters if unicodedata.category(c)[0] != "M").lower()


def copied(h: Head) -> tuple[float, float]:
    same = [
        basic(h.names[Side.TARGET][t]) == basic(h.names[Side.SOURCE][s])
        for t, s in h.chosen.items()
    ]
    return sum(same), len(same)


def diagonal(h: Head) -> tuple[float, float]:
    """The source whose part of the text holds the middle of the target's."""
    found = 0
    for target, source in h.chosen.items():
        middle = (h.targets.index(target) + 0.5) / len(h.targets)
        position = h.sources.index(source)
        found += position / len(h.sources) <= middle < (position + 1) / len(h.sources)
    return found, len(h.chosen)


def monotone(h: Head) -> tuple[float, float]:
    order = [h.sources.index(source) for source in h.chosen.values()]
    tau = kendalltau([*h.chosen], order).statistic if len(order) > 1 else math.nan
    return (0.0, 0.0) if math.isnan(tau) else (float(tau), 1.0)


def shares(h: Head) -> dict[str, tuple[float, float]] | None:
    """Error, precision and recall by the definitions, on sets of pairs of words."""
    written = h.sentence.metadata.get("alignment", "").split()
    if not written or written == ["0-0", "9-0"]:
        return None
    possible = {tuple(map(int, pair.replace("?", "-").split("-"))) for pair in written}
    sure = {tuple(map(int, pair.split("-"))) for pair in written if "?" not in pair}
    message = {(s, t) for t, s in h.chosen.items()}
    total = len(message) + len(sure)
    return {
        "aer": (total - len(message & sure) - len(message & possible), total),
        "precision": (len(message & possible), len(message)),
        "recall": (len(message & sure), len(sure)),
    }


@pytest.fixture(scope="module", params=FAMILIES)
def aligned(request: pytest.FixtureRequest, once: Once) -> Path:
    """A tiny model and its study of pairs of texts, most of them with gold alignments."""

    def fill(folder: Path) -> None:
        rows = [
            {"source": source, "target": target, "alignment": gold}
            for (source, target), gold in zip(PAIRS, GOLD, strict=True)
        ]
        file = folder / "pairs.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        model = tiny.write(request.param, folder / "model")
        metrics = "relative_entropy,confidence,attention_to"
        options = {"metrics": metrics, "exemplars": 1, "sentence_pages": "all"}
        make_study(file, model, **options).save(folder / "study")

    return once(f"aligned-{request.param}", fill)


@pytest.fixture(scope="module")
def study(aligned: Path) -> Study:
    return Study.load(aligned / "study")


@pytest.fixture(scope="module")
def exact(aligned: Path, study: Study) -> dict[int, Any]:
    return exact_maps(study, aligned / "model")


def check(
    number: Estimate, parts: Sequence[tuple[float, float]], limits: tuple[float, float]
) -> None:
    """The number is the ratio of sums, its ends those of the interval within the limits."""
    wanted = ratio([Part(n, d, d) for n, d in parts], limits)
    assert number == pytest.approx(wanted, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("row", AlignmentRow)
def test_every_number_of_a_head_is_that_of_loops_over_tokens(
    study: Study, exact: dict[int, Any], row: AlignmentRow
) -> None:
    """For BART, T5 and Marian; correlations against SciPy's."""
    cross = stack_results(study)["cross"]
    found = alignments(cross)[row]
    assert {*found.half.tolist()} <= {0, 1}
    naive: dict[str, Callable[[Head], tuple[float, float]]] = {
        "same_form": copied, "diagonal": diagonal, "monotone": monotone,
    }  # fmt: skip
    for layer in cross.stack.attention_layers:
        for head in range(cross.stack.n_heads):
            heads = [*each_sentence(study, exact, layer, head, row)]
            parts = {name: [of(h) for h in heads] for name, of in naive.items()}
            judgements = [j for j in map(shares, heads) if j is not None]
            parts |= {n: [j[n] for j in judgements] for n in ("aer", "precision", "recall")}
            for name, of_sentences in parts.items():
                limits = (-1.0, 1.0) if name == "monotone" else (0.0, 1.0)
                check(found.estimates[name].at(layer, head), of_sentences, limits)
            chosen = [part for h, part in zip(heads, parts["same_form"], strict=True)
                      if h.sentence.half == 0]  # fmt: skip
            n, d = (sum(values) for values in zip(*chosen, strict=True)) if chosen else (0.0, 0.0)
            value = found.chosen["same_form"][layer, head]
            assert value == pytest.approx(n / d if d else math.nan, nan_ok=True)


@pytest.mark.slow
def test_even_choice_is_the_mean_over_all_sources(study: Study, exact: dict[int, Any]) -> None:
    found = alignments(stack_results(study)["cross"])
    even: list[float] = []
    near: list[float] = []
    for h in each_sentence(study, exact, 0, 0, "read"):
        others = [basic(h.names[Side.SOURCE][s]) for s in h.sources]
        for target in h.targets:
            even.append(others.count(basic(h.names[Side.TARGET][target])) / len(others))
            near.append(1 / len(others))
    for row in AlignmentRow:
        assert found[row].even["same_form"].value == pytest.approx(np.mean(even))
        assert found[row].even["diagonal"].value == pytest.approx(np.mean(near))


@pytest.mark.slow
def test_sentences_whose_gold_cannot_be_read_take_no_part(study: Study) -> None:
    """Neither one without links nor one with a link to a word that is not there."""
    for found in alignments(stack_results(study)["cross"]).values():
        assert {*found.estimates["aer"].sentences.ravel()} == {2}
        assert {*found.estimates["diagonal"].sentences.ravel()} <= {*range(1, 5)}
        assert len(found.half) == 4


def two_words(by_space: bool) -> AlignedText:
    """A start token, "la", "la" in two pieces, a stray piece, an end token."""
    return aligned_text(
        "la lala !", ("<s>", "la", "la", "la", "!", "</s>"),
        ((0, 0), (0, 2), (3, 5), (5, 7), (8, 9), (9, 9)),
        (True, False, False, False, False, True), (-1, 0, 1, 1, -1, -1), by_space=by_space,
    )  # fmt: skip


@pytest.mark.parametrize("by_space", [False, True])
def test_rows_of_a_word_are_averaged_and_keys_summed(by_space: bool) -> None:
    text = two_words(by_space)
    assert text.names == ("la", "lala", "!")
    weights = np.random.default_rng(0).random((1, 6, 6))
    tokens = ([1], [2, 3], [4])
    for row, before in ((AlignmentRow.READ, 0), (AlignmentRow.WRITTEN, 1)):
        found = word_attention(weights, text, text, row)
        for target, source in np.ndindex(3, 3):
            rows = [place - before for place in tokens[target]]
            wanted = sum(weights[0, r, k] for r in rows for k in tokens[source]) / len(rows)
            assert found[0, target, source] == pytest.approx(wanted)


def test_of_equal_words_the_first_is_the_source() -> None:
    text = two_words(by_space=False)
    even = np.full((1, 6, 6), 1 / 6)
    assert strongest_sources(even, text, text).tolist() == [[[1, 1, 1]]] * 2
    assert strongest_sources(even * 0, text, text).tolist() == [[[-1, -1, -1]]] * 2


def test_correlations_are_those_of_scipy() -> None:
    """With ties, places without a source, and constant rows."""
    generator = np.random.default_rng(0)
    for length in (1, 2, 3, 9, 20):
        best = generator.integers(-1, 4, (40, length))
        best[0], best[1] = 2, -1
        for row, tau in zip(best, kendall(best), strict=True):
            there = row >= 0
            baseline_run = math.nan
            if there.sum() > 1:
                baseline_run = kendalltau(np.flatnonzero(there), row[there]).statistic
            assert tau == pytest.approx(baseline_run, nan_ok=True)


def test_order_and_its_reverse_are_1_and_minus_1() -> None:
    assert kendall(np.array([[0, 1, 2], [2, 1, 0]])).tolist() == pytest.approx([1, -1])


def test_the_diagonal_joins_same_parts() -> None:
    assert on_diagonal(4, 4).tolist() == [0, 1, 2, 3]
    assert on_diagonal(2, 4).tolist() == [1, 3]
    assert on_diagonal(4, 2).tolist() == [0, 0, 1, 1]
    assert on_diagonal(1, 3).tolist() == [1]


def test_f1_is_the_harmonic_mean_or_missing() -> None:
    assert f1(0.5, 1.0) == pytest.approx(2 / 3)
    assert f1(0.0, 0.0) == 0
    assert math.isnan(f1(math.nan, 1.0))


@pytest.mark.slow
def test_the_page_has_every_head_with_its_numbers(pair_site: Site) -> None:
    """The better rows first, those without a number last; each number once by row and measure."""
    cross = pair_site.results["cross"]
    by_row = alignments(cross)
    page = alignment_page(pair_site.results)
    first, numbers, *_ = every(Table, page)
    heads = [row[0] for row in first.rows if isinstance(row[0], HeadName)]
    assert len(heads) == len(first.rows)
    assert sorted(heads, key=str) == sorted(heads_of(cross.stack), key=str)
    assert heads == [row[0] for row in numbers.rows[1:]]
    better = {head: better_row(cross, head, "same_form") for head in heads}
    values = [
        float(by_row[better[head] or AlignmentRow.READ].estimates["same_form"].value[head[1:]])
        for head in heads
    ]
    known = [value for value in values if not math.isnan(value)]
    assert values[: len(known)] == sorted(known, reverse=True)
    for head, (_, *cells) in zip(heads, first.rows, strict=True):
        printed = {
            str(number.row.key[3][1]): number for number in cells if isinstance(number, Number)
        }
        for row, found in by_row.items():
            own = found.estimates["same_form"].at(*head[1:])
            assert printed[str(row)].value == pytest.approx(own.value, nan_ok=True)


def text_of_cell(cell: Cell) -> str:
    """Return the words of a cell that has some."""
    return cell if isinstance(cell, str) else str(getattr(cell, "text"))  # noqa: B009


@pytest.mark.slow
def test_the_links_on_the_page_are_the_strongest_sources(pair_site: Site) -> None:
    """Of each target word, in the table of the first sentence."""
    study = pair_site.study
    exact = exact_maps(study, pair_site.model)
    links = next(
        t for t in every(Table, alignment_page(pair_site.results)) if "target" in t.columns
    )
    for column, title in enumerate(links.columns[1:], 1):
        match = re.fullmatch(r"cross L(\d+·H\d+), the word (\w+)", text_of_cell(title))
        assert match is not None
        name, row = match.groups()
        layer, head = map(int, name.split("·H"))
        h = next(each_sentence(study, exact, layer, head, row))
        assert [text_of_cell(line[0]) for line in links.rows] == [
            h.names[Side.TARGET][target] for target in h.targets
        ]
        for target, line in zip(h.targets, links.rows, strict=True):
            linked = line[column]
            assert isinstance(linked, Sentence)
            assert linked.parts[0].text == h.names[Side.SOURCE][h.chosen[target]]


@pytest.mark.slow
def test_the_table_of_files_has_the_same_numbers(study: Study, pair_site: Site) -> None:
    """Of every measure, row and head; against gold alignments only where there are any."""
    crossing = stack_results(study)
    found = alignments(crossing["cross"])
    table = alignment_table(crossing).set_index(["row", "measure", "layer", "head"]).sort_index()
    for row, numbers in found.items():
        for name, estimates in numbers.estimates.items():
            for place in np.ndindex(estimates.value.shape):
                line = table.loc[(str(row), name, *place)]
                columns = ("value", "low", "high", "n_sentences", "n_observations")
                reported = [line[column] for column in columns]
                assert reported == pytest.approx(estimates.at(*place)[:5], nan_ok=True)
        even = table.loc[str(row)].groupby("measure")["uniform"].first()
        for name in ("diagonal", "same_form"):
            assert even[name] == numbers.even[name].value
    values = table["value"].unstack("measure")
    expected = [f1(*pair) for pair in zip(values["precision"], values["recall"], strict=True)]
    assert values["f1"].tolist() == pytest.approx(expected, nan_ok=True)
    written = (pair_site.folder / "data/alignments.csv").read_text().splitlines()
    assert {line.split(",")[4] for line in written[1:]} == {"monotone", "diagonal", "same_form"}
    assert alignment_table({"self": crossing["encoder"]}).empty


@pytest.mark.slow
def test_only_models_with_cross_attention_have_the_page(
    encoder_site: Site, pair_site: Site
) -> None:
    assert not (encoder_site.folder / "alignment.html").exists()
    assert (pair_site.folder / "alignment.html").exists()
    for path in ("sentences/0001.html", "index.html"):
        links = [re.findall(r'href="[./]*alignment\.html', html_of(site.folder / path))
                 for site in (pair_site, encoder_site)]  # fmt: skip
        assert [bool(found) for found in links] == [True, False]
