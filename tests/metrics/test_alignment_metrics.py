"""Alignments of cross-attention equal what loops over sentences and tokens give."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import html5lib
import numpy as np
import pytest
from scipy.stats import kendalltau

import tiny
from bare_model import Bare
from headbook.analysis.accumulators import Estimate
from headbook.report.alignment import alignment_table, alignments, f1, kendall, on_diagonal
from headbook.report.results import stack_results
from headbook.report.wording import stored_weight
from headbook.results.formats import number
from headbook.schema import Side
from headbook.study.study import Study
from html_pages import html_of
from naive_ratios import Part, ratio
from sites import Once, Site, make_study
from treebank import PAIRS

pytestmark = pytest.mark.usefixtures("of_any_number")

GOLD = ("0-0 1-1 2?2 4-4", "0-0 1-1 2-2", "", "0-0 9-0")  # the last: a word that is not there
FAMILIES = ("bart", "t5", "marian")


class Head(NamedTuple):
    """One head in one sentence: for each target token that counts its source, by position."""

    sentence: Any
    sources: list[int]
    targets: list[int]
    chosen: dict[int, int]


def exact_maps(study: Study, model: Path) -> dict[int, Any]:
    """Weights of cross-attention as the model returns them, by sentence and layer."""
    bare = Bare.load(model, pairs=True)
    maps = {}
    for sentence in study.sentence_data.listed:
        texts = [sentence.texts[side].text for side in Side]
        output = bare.run(bare.ids(*texts), output_attentions=True)
        maps[sentence.index] = [weights[0].numpy() for weights in output.cross_attentions]
    return maps


def each_sentence(study: Study, exact: dict[int, Any], layer: int, head: int) -> Iterator[Head]:
    """What a head looks at most, found by looping over its map."""
    for index, maps in exact.items():
        sentence = study.sentence_data.sentences[index]
        sources, targets = (
            [i for i, special in enumerate(sentence.texts[side].special) if not special]
            for side in (Side.SOURCE, Side.TARGET)
        )
        chosen = {}
        for target in targets:
            row = {source: float(maps[layer][head, target, source]) for source in sources}
            if row and max(row.values()) > 0:
                chosen[target] = next(s for s in sources if row[s] == max(row.values()))
        if sources and targets:
            yield Head(sentence, sources, targets, chosen)


def basic(text: str) -> str:
    letters = unicodedata.normalize("NFD", text.strip())
    return "".join(c for c in letters if unicodedata.category(c)[0] != "M").lower()


def copied(h: Head) -> tuple[float, float]:
    pieces = {side: h.sentence.texts[side].pieces for side in Side}
    same = [
        basic(pieces[Side.TARGET][t]) == basic(pieces[Side.SOURCE][s]) for t, s in h.chosen.items()
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
    tau = kendalltau([*h.chosen], [*h.chosen.values()]).statistic if len(h.chosen) > 1 else math.nan
    return (0.0, 0.0) if math.isnan(tau) else (float(tau), 1.0)


def shares(h: Head) -> dict[str, tuple[float, float]] | None:
    """Error, precision and recall by the definitions, on sets of pairs of words."""
    written = h.sentence.metadata.get("alignment", "").split()
    if not written or written == ["0-0", "9-0"]:
        return None
    possible = {tuple(map(int, pair.replace("?", "-").split("-"))) for pair in written}
    sure = {tuple(map(int, pair.split("-"))) for pair in written if "?" not in pair}
    words = {
        side: [len(text.text[: start + 1].split()) - 1 for start, _ in text.spans]
        for side, text in h.sentence.texts.items()
    }
    message = {(words[Side.SOURCE][s], words[Side.TARGET][t]) for t, s in h.chosen.items()}
    total = len(message) + len(sure)
    return {
        "error": (total - len(message & sure) - len(message & possible), total),
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
def test_every_number_of_a_head_is_that_of_loops_over_tokens(
    study: Study, exact: dict[int, Any]
) -> None:
    """For BART, T5 and Marian; correlations against SciPy's."""
    cross = stack_results(study)["cross"]
    found = alignments(cross)
    assert found is not None
    baseline_runs: dict[str, Callable[[Head], tuple[float, float]]] = {
        "copied": copied, "diagonal": diagonal, "monotone": monotone,
    }  # fmt: skip
    for layer in cross.stack.attention_layers:
        for head in range(cross.stack.n_heads):
            heads = [*each_sentence(study, exact, layer, head)]
            for name, baseline_run in baseline_runs.items():
                limits = (-1.0, 1.0) if name == "monotone" else (0.0, 1.0)
                check(
                    getattr(found, name).at(layer, head), [baseline_run(h) for h in heads], limits
                )
            judgements = [j for j in map(shares, heads) if j is not None]
            for name in ("error", "precision", "recall"):
                parts = [j[name] for j in judgements]
                check(getattr(found, name).at(layer, head), parts, (0.0, 1.0))


@pytest.mark.slow
def test_even_choice_is_the_mean_over_all_sources(study: Study, exact: dict[int, Any]) -> None:
    found = alignments(stack_results(study)["cross"])
    assert found is not None
    heads = [*each_sentence(study, exact, 0, 0)]
    even: list[float] = []
    near: list[float] = []
    for h in heads:
        for target in h.targets:
            piece = basic(h.sentence.texts[Side.TARGET].pieces[target])
            others = [basic(h.sentence.texts[Side.SOURCE].pieces[s]) for s in h.sources]
            even.append(others.count(piece) / len(others))
            near.append(1 / len(others))
    assert found.even_copied.value == pytest.approx(np.mean(even))
    assert found.even_diagonal.value == pytest.approx(np.mean(near))


@pytest.mark.slow
def test_sentences_whose_gold_cannot_be_read_take_no_part(study: Study) -> None:
    """Neither one without links nor one with a link to a word that is not there."""
    found = alignments(stack_results(study)["cross"])
    assert found is not None
    assert found.error is not None
    assert {*found.error.sentences.ravel()} == {2}
    assert {*found.diagonal.sentences.ravel()} <= {*range(1, 5)}
    assert found.sentences == 4


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


def rows_of(folder: Path, kind: str) -> Iterator[list[str]]:
    """The rows of the page's tables of a class, as texts of cells, their spaces as one."""
    page = html5lib.parse(html_of(folder / "alignment.html"), namespaceHTMLElements=False)
    for table in page.iter("table"):
        if kind in table.get("class", "").split():
            for row in table.iter("tr"):
                yield [" ".join("".join(cell.itertext()).split()) for cell in row]


@pytest.mark.slow
def test_the_page_has_every_head_with_its_numbers(pair_site: Site) -> None:
    """The most monotone first, those without a correlation last."""
    cross = pair_site.results["cross"]
    found = alignments(cross)
    assert found is not None
    rows = [*rows_of(pair_site.folder, "aligned")][2:]
    places = [tuple(map(int, re.findall(r"\d+", row[0]))) for row in rows]
    assert sorted(places) == [(layer, head) for layer in range(2) for head in range(4)]
    order = [found.monotone.value[place] for place in places]
    there = [value for value in order if not math.isnan(value)]
    assert there == sorted(there, reverse=True)
    assert all(map(math.isnan, order[len(there) :]))
    columns = (found.monotone, found.diagonal, found.copied)
    for place, row in zip(places, rows, strict=True):
        for cell, numbers in zip(row[-3:], columns, strict=True):
            own = numbers.at(*place)
            text = number(own.value, share=numbers is not found.monotone)
            assert " ".join(cell.split()).startswith(" ".join(text.split()))
        assert len(row) == 5  # head, entropy, and the three


@pytest.mark.slow
def test_the_links_on_the_page_are_the_strongest_sources(pair_site: Site) -> None:
    """Of each target token that counts, in the table of the first sentence."""
    study = pair_site.study
    first = [*rows_of(pair_site.folder, "aligned")][2]
    layer, head = map(int, re.findall(r"\d+", first[0]))
    h = next(each_sentence(study, exact_maps(study, pair_site.model), layer, head))
    maps = study.sentence_data.maps["cross", h.sentence.index]
    pieces = {side: h.sentence.texts[side].pieces for side in Side}
    displayed = list(rows_of(pair_site.folder, "linked"))[1 : len(h.targets) + 1]
    for target, row in zip(h.targets, displayed, strict=True):
        assert row[0] == pieces[Side.TARGET][target]
        source = h.chosen[target]
        weight = stored_weight(int(maps[layer, head, target, source]))
        assert row[1] == f"{pieces[Side.SOURCE][source]} {' '.join(weight.split())}"


@pytest.mark.slow
def test_the_table_of_files_has_the_same_numbers(study: Study, pair_site: Site) -> None:
    """Of every measure and head; against gold alignments only where there are any."""
    crossing = stack_results(study)
    found = alignments(crossing["cross"])
    assert found is not None
    table = alignment_table(crossing).set_index(["measure", "layer", "head"]).sort_index()
    for name, numbers in {
        "monotone": found.monotone, "diagonal": found.diagonal, "same_form": found.copied,
        "aer": found.error, "precision": found.precision, "recall": found.recall,
    }.items():  # fmt: skip
        assert numbers is not None
        for place in np.ndindex(numbers.value.shape):
            row = table.loc[(name, *place)]
            reported = [row[n] for n in ("value", "low", "high", "n_sentences", "n_observations")]
            assert reported == pytest.approx(numbers.at(*place)[:5], nan_ok=True)
    even = table.groupby("measure")["uniform"].first()
    assert even["diagonal"] == found.even_diagonal.at().value
    assert even["same_form"] == found.even_copied.at().value
    values = table["value"].unstack("measure")
    expected = [f1(*pair) for pair in zip(values["precision"], values["recall"], strict=True)]
    assert values["f1"].tolist() == pytest.approx(expected, nan_ok=True)
    written = (pair_site.folder / "data/alignments.csv").read_text().splitlines()
    assert {line.split(",")[3] for line in written[1:]} == {"monotone", "diagonal", "same_form"}
    assert alignment_table({"self": crossing["encoder"]}).empty


@pytest.mark.slow
def test_only_models_with_cross_attention_have_the_page(
    encoder_site: Site, pair_site: Site
) -> None:
    assert not (encoder_site.folder / "alignment.html").exists()
    assert (pair_site.folder / "alignment.html").exists()
    for path in ("sentences/0001.html", "index.html"):
        assert "alignment.html" in html_of(pair_site.folder / path)
        assert "alignment.html" not in html_of(encoder_site.folder / path)
