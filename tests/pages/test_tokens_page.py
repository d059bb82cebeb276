"""The page of token types: mean paths by plain loops, and where occurrences part."""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import tiny
import treebank
from bare_model import Bare, Given, given
from headbook.config import Config
from headbook.pages.tokens import HALF, compared_types, types_data, types_page
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.schema import CONTENT
from headbook.study.study import Study
from headbook.study.token_sums import TokenTypeSums
from html_pages import elements, html_of
from naive_tokens import paths
from sites import Site
from treebank import Gold

METRICS = "cosine_to_input,nearest_tokens"


@pytest.fixture(scope="module", params=["bert", "gpt2", "t5"])
def measured(
    request: pytest.FixtureRequest,
    tiny_folder: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Study]:
    name, folder = request.param, tmp_path_factory.mktemp("types")
    pairs = tiny.ALL[name].pairs
    file = folder / ("pairs.jsonl" if pairs else "trees.conllu")
    file = treebank.write_pairs(file) if pairs else treebank.write_trees(file, treebank.TREES)
    config = Config(
        model=str(tiny_folder(name)),
        dtype="float64",
        annotator="none",
        importance="off",
        metrics=METRICS,
        batch_tokens=40,
    )
    return name, collect(file, config)


REPEATED = (
    (("the", "DET"), ("dog", "NOUN"), ("sees", "VERB"), ("the", "DET"), ("bird", "NOUN")),
    (("old", "ADJ"), ("dog", "NOUN"), ("runs", "VERB")),
    (("a", "DET"), ("bird", "NOUN"), ("sees", "VERB"), ("water", "NOUN"), (".", "PUNCT")),
    (("the", "DET"), ("red", "ADJ"), ("house", "NOUN"), ("and", "CCONJ"), ("dog", "NOUN")),
)


@pytest.fixture(scope="module")
def repeated(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Nouns and verbs that come back in other sentences."""
    trees = tuple(tuple(Gold(word, tag, 0, "root") for word, tag in each) for each in REPEATED)
    file = treebank.write_trees(tmp_path_factory.mktemp("repeated") / "trees.conllu", trees)
    return collect(file, model=str(tiny_folder("bert")), annotator="none", metrics=METRICS)


def naive(bare: Bare, name: str) -> dict[tuple[str, int, int, str], list[tuple[int, float]]]:
    """By stack, entry, layer and state: the sentence and the cosine of every occurrence."""
    found = defaultdict(list)
    pairs = [tuple(Given(text, ()) for text in pair) for pair in treebank.PAIRS]
    inputs = pairs if tiny.ALL[name].pairs else [(given(tree),) for tree in treebank.TREES]
    for number, sides in enumerate(inputs):
        texts = bare.texts(*sides)
        rows = [[token.id for token in text.tokens] for text in texts]
        for stack, path in paths(bare, rows).items():
            for (layer, state), vectors in path.states.items():
                for i, token in enumerate(texts[stack == "decoder"].tokens):
                    if stack != "cross" and not token.special:
                        a, b = path.start[i], vectors[i]
                        cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
                        found[stack, token.id, layer, state].append((number, cosine))
    return found


def test_mean_paths_agree_with_plain_loops(
    measured: tuple[str, Study], tiny_folder: Callable[[str], Path]
) -> None:
    name, study = measured
    expected = naive(Bare.load(tiny_folder(name), pairs=tiny.ALL[name].pairs), name)
    keys = ["stack", "entry", "layer", "state"]
    rows = study.types.set_index(keys).to_dict("index")
    assert set(rows) == set(expected)
    for key, pairs in expected.items():
        values = [value for _, value in pairs]
        row = rows[key]
        assert (row["count"], row["n_sentences"]) == (
            len(pairs),
            len({number for number, _ in pairs}),
        )
        np.testing.assert_allclose(row["value"], np.mean(values), rtol=0, atol=1e-9)
        wanted = np.std(values, ddof=1) if len(values) > 1 else np.nan
        np.testing.assert_allclose(row["std"], wanted, rtol=0, atol=1e-7)


def split(sums: TokenTypeSums, chosen: list[int]) -> TokenTypeSums:
    """Some of the types."""
    arrays = ("ids", "count", "sentences", "total", "squares")
    some = {name: getattr(sums, name)[chosen] for name in arrays}
    return replace(sums, names=tuple(sums.names[position] for position in chosen), **some)


def test_types_of_two_parts_add_up(measured: tuple[str, Study]) -> None:
    sums = next(iter(measured[1].corpus_sums.types.values()))
    n = len(sums.ids)
    one, other = split(sums, [*range(0, n, 2)]), split(sums, [*range(n)])
    both = one + other
    assert both.names == sums.names
    np.testing.assert_array_equal(both.ids, sums.ids)
    np.testing.assert_array_equal(both.count, sums.count * (2 - np.arange(n) % 2))
    np.testing.assert_allclose(both.mean, sums.mean, rtol=1e-12)


def test_compared_tokens_are_the_same_content_word_in_different_sentences(
    repeated: Study,
) -> None:
    study = repeated
    compared = compared_types(study, study.manifest.stacks[0])
    assert {each.name for each in compared} == {"dog", "bird", "sees"}
    for each in compared:
        assert len({o.href for o in each.occurrences}) == len(each.occurrences) > 1
        assert {o.token for o in each.occurrences} == {each.name}
        for o in each.occurrences:
            sentence = study.sentence_data.sentences[int(o.name.split()[1]) - 1]
            (text,) = sentence.texts.values()
            assert o.before + o.token + o.after in text.text
            assert CONTENT & {
                t for t, p in zip(text.tags, text.pieces, strict=True) if p == o.token
            }
        assert len(each.partings.rows) == len([*combinations(each.occurrences, 2)])


def test_occurrences_part_where_they_share_fewer_than_half_of_their_neighbours(
    repeated: Study,
) -> None:
    study = repeated
    near = study.nearest[(study.nearest["state"] == "out")]
    near = near[near["space"] == "positional"]
    known = defaultdict(set)
    for row in near.itertuples():
        known[row.sentence, row.token, row.layer].add(row.neighbour)
    layers = sorted(set(near["layer"]))
    seen = set()
    for each in compared_types(study, study.manifest.stacks[0]):
        for parting in each.partings.rows:
            a, b = map(int, re.findall(r"\d+", parting.name))
            shared = [len(known[a, each.name, n] & known[b, each.name, n]) for n in layers]
            layer = next((str(n) for n in layers if shared[n] < HALF), "never")
            assert parting.cells == (layer, f"{shared[-1]} of 10")
            seen.add(layer)
    assert seen


def test_the_page_and_its_data_name_every_type(encoder_site: Site, tmp_path: Path) -> None:
    study = encoder_site.study
    page = types_page(stack_results(study))
    assert page is not None
    (sums,) = study.corpus_sums.types.values()
    (rows,) = types_data(study.corpus_sums.types).values()
    assert sorted(row[0] for row in rows) == sorted(sums.names)
    assert [row.name for row in page.stacks[0].table.rows] == [row[0] for row in rows][:120]
    counts = [int(row[1].replace(",", "")) for row in rows]
    assert counts == sorted(counts, reverse=True)
    study.save(tmp_path / "study")
    read = Study.load(tmp_path / "study")
    assert read.types.equals(study.types)
    html = html_of(encoder_site.folder / "tokens.html")
    headings = [e for e in elements(html, "th") if e.attributes.get("scope") == "row"]
    assert len(headings) == len(page.stacks[0].table.rows) == len(rows)
