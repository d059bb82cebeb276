"""The page of tokens: mean paths and shared neighbours by plain loops."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import tiny
import treebank
from bare_model import Bare, Given, given
from block_parts import every, group_of
from headbook.analysis.arrays import Floats
from headbook.config import Config
from headbook.pages.parts.blocks import Table
from headbook.pages.parts.recurring_words import (
    levels_table,
    nearest_texts,
    uses,
    uses_table,
    word_edge,
)
from headbook.pages.tokens import token_marks, types_data, types_page
from headbook.report.facts.states.tokens import compared_words, use_cosines
from headbook.report.results import StackResults, stack_results
from headbook.report.token_neighbours import (
    hubs,
    shared_neighbours,
    whole_words,
)
from headbook.results.sentence import Marked, Sentence
from headbook.run.collect import collect
from headbook.study.study import Study
from headbook.study.sums.token_sums import TokenTypeSums
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
    return name, collect(file, config=config)


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


@pytest.fixture(scope="module")
def results(repeated: Study) -> StackResults:
    return stack_results(repeated)["self"]


def neighbours(study: Study) -> dict[tuple[int, int, int], list[str]]:
    """The ten nearest other tokens by sentence, position and layer, by a plain loop."""
    rows = study.nearest[(study.nearest["state"] == "out")]
    found = defaultdict(list)
    for row in rows[rows["space"] == "positional"].sort_values("rank").to_dict("records"):
        if row["neighbour"] != row["token"]:  # a word of one token in the vocabulary's spelling
            found[row["sentence"], row["position"], row["layer"]].append(row["neighbour"])
    return {cell: names[:10] for cell, names in found.items()}


def test_recurring_words_are_whole_words_with_their_class(results: StackResults) -> None:
    found = shared_neighbours(results)
    assert found is not None
    classes = {word.text: word.kind for word in found.words}
    assert classes == {"the": "function", "dog": "content", "bird": "content", "sees": "content"}
    for word in found.words:
        sentences = [sentence for sentence, _ in word.cells]
        assert len({*sentences}) == len(sentences) > 1
        for sentence, position in word.cells:
            (text,) = results.study.sentence_data.sentences[sentence - 1].texts.values()
            assert text.pieces[position] == word.text
            assert text.pieces.index(word.text) == position  # its first occurrence


def test_shared_neighbours_are_counted_by_plain_loops(results: StackResults) -> None:
    found, near = shared_neighbours(results), neighbours(results.study)
    assert found is not None
    for layer in range(results.stack.n_layers):
        for word in found.words:
            counts = [
                len({*near[*one, layer]} & {*near[*other, layer]})
                for one, other in combinations(word.cells, 2)
            ]
            assert word.shared[layer] == pytest.approx(np.mean(counts))
        for kind, means in found.means.items():
            of_class = [word.shared[layer] for word in found.words if word.kind == kind]
            assert means.value[layer] == pytest.approx(np.mean(of_class))
        firsts = [near[*word.cells[0], layer] for word in found.words]
        counts = [len({*one} & {*other}) for one, other in combinations(firsts, 2)]
        assert found.different[layer] == pytest.approx(np.mean(counts))


def test_compared_occurrences_share_the_fewest_tokens(results: StackResults) -> None:
    found, near = shared_neighbours(results), neighbours(results.study)
    assert found is not None
    last = results.stack.n_layers - 1
    for word in found.words:
        counts = {
            pair: len({*near[*pair[0], last]} & {*near[*pair[1], last]})
            for pair in combinations(word.uses, 2)
        }
        chosen = found.least_similar(word)
        assert counts[chosen] == min(counts.values())
        assert found.shared(*chosen)[last] == counts[chosen]


def test_compared_words_are_nouns_and_verbs_if_any_recurs(results: StackResults) -> None:
    found = shared_neighbours(results)
    assert found is not None
    words = compared_words(found)
    assert {word.text for word in words} == {"dog", "bird", "sees"}
    lowest = [word.shared[-1] for word in words]
    assert lowest == sorted(lowest)
    adverbs = found._replace(words=tuple(word._replace(tag="ADV") for word in found.words))
    assert {word.text for word in compared_words(adverbs)} == {"dog", "bird", "sees"}
    one_verb = found._replace(
        words=tuple(w if w.text == "sees" else w._replace(tag="ADV") for w in found.words)
    )
    assert [word.text for word in compared_words(one_verb)] == ["sees"]


def test_uses_stand_side_by_side_with_what_they_share(results: StackResults) -> None:
    found, near = shared_neighbours(results), neighbours(results.study)
    assert found is not None
    for word in compared_words(found):
        table = uses_table(results, found, word)
        one, other = found.least_similar(word)
        assert len(table.columns) == len(word.uses) + 4
        assert isinstance(table.columns[1], Sentence)
        assert word.text in table.columns[1].text
        for layer, cells in enumerate(table.rows):
            first, second = (near[*cell, layer] for cell in (one, other))
            assert cells[0] == f"L{layer}"
            names = [re.sub("[°†]", "", str(cell)).split(" · ") for cell in cells[1:3]]
            assert names == [first[:3], second[:3]]
            assert cells[3] == len({*first} & {*second})
    opened = [*uses(results, found)]
    assert len({each.id for each in opened}) == len(opened) == 3
    assert [each.open for each in opened] == [True, True, False]


@pytest.mark.parametrize(
    ("position", "step", "edge"), [(2, 1, 3), (2, -1, 2), (3, -1, 2), (0, 1, 0), (4, 1, 4)]
)
def test_context_ends_with_a_whole_word(position: int, step: int, edge: int) -> None:
    assert word_edge([-1, 0, 1, 1, 2], position, step) == edge


def test_cosines_of_uses_agree_with_plain_loops(
    measured: tuple[str, Study], tiny_folder: Callable[[str], Path]
) -> None:
    """In float64, of the first token of each word in each sentence, by the bare model."""
    name, study = measured
    bare = Bare.load(tiny_folder(name), pairs=tiny.ALL[name].pairs)
    pairs = [tuple(Given(text, ()) for text in pair) for pair in treebank.PAIRS]
    inputs = pairs if tiny.ALL[name].pairs else [(given(tree),) for tree in treebank.TREES]
    states = {}
    for number, sides in enumerate(inputs, start=1):
        rows = [[token.id for token in text.tokens] for text in bare.texts(*sides)]
        for stack, path in paths(bare, rows).items():
            for (layer, state), vectors in path.states.items():
                for position, vector in enumerate(vectors if state == "out" else ()):
                    states[stack, layer, number, position] = vector / np.linalg.norm(vector)
    assert len(study.uses) > 0
    firsts: defaultdict[tuple[str, int], dict[str, Floats]] = defaultdict(dict)
    for use in study.uses.to_dict("records"):
        where = use["stack"], use["layer"]
        one, other = (
            states[*where, use[f"{which}sentence"], use[f"{which}position"]]
            for which in ("", "other_")
        )
        np.testing.assert_allclose(use["cosine"], one @ other, rtol=0, atol=1e-12)
        firsts[where].setdefault(use["word"], one)
    for use in study.uses.to_dict("records"):
        first_uses = firsts[use["stack"], use["layer"]].values()
        cosines = [one @ other for one, other in combinations(first_uses, 2)]
        wanted = np.mean(cosines) if cosines else np.nan
        np.testing.assert_allclose(use["different_words"], wanted, rtol=0, atol=1e-12)


def test_every_two_uses_of_a_word_are_compared(results: StackResults) -> None:
    found = shared_neighbours(results)
    assert found is not None
    table = results.study.uses
    for word in found.words:
        pairs = [*combinations(word.uses, 2)]
        assert len(table[table["word"] == word.text]) == len(pairs) * results.stack.n_layers
        for one, other in pairs:
            cosines = use_cosines(results, other, one)
            assert [n.cosine.place("layer") for n in cosines] == [*range(results.stack.n_layers)]


def test_hubs_are_near_to_more_than_a_tenth_of_the_states_of_a_layer(results: StackResults) -> None:
    """By plain loops; the token itself does not count."""
    near = neighbours(results.study)
    for layer in range(results.stack.n_layers):
        states = [names for (_, _, of), names in near.items() if of == layer]
        counts = Counter(name for names in states for name in names)
        wanted = {name: n / len(states) for name, n in counts.items() if n / len(states) > 0.1}
        assert hubs(results)["out", "positional", layer] == pytest.approx(wanted)


def test_marks_of_tokens_are_explained_where_they_stand() -> None:
    table = Table(("after", "a", "b", "shared by both"), (("L0", "dog · ##s", "–", 3),), "uses")
    assert nearest_texts([table]) == ["dog", "##s", "–"]
    assert "continues a word" in token_marks(["dog", "##s"])
    assert token_marks(["␣dog"]).endswith("begins a word.")
    assert token_marks(["dog", "##", "␣"]) == token_marks([]) == ""


def test_every_word_has_one_level(results: StackResults) -> None:
    found = shared_neighbours(results)
    assert found is not None
    table = levels_table(results, found)
    placed: dict[str, int] = {}
    for level, words in table.rows:
        assert isinstance(words, Sentence)
        placed |= {name: int(str(level)) for name in words.text.split()}
    assert len(placed) == len(found.words)
    for word in found.words:
        assert abs(placed[word.text] - word.shared[-1]) <= 0.5


def test_the_first_token_of_causal_attention_is_no_occurrence(
    measured: tuple[str, Study],
) -> None:
    name, study = measured
    results = next(iter(stack_results(study).values()))
    positions = {word.cell[1] for word in whole_words(results)}
    assert positions
    # T5 has no start token, and its encoder is not causal: the first token is a word like others.
    assert (0 in positions) is (name == "t5")
    assert results.stack.causal == (name == "gpt2")


def test_the_page_as_written_is_small(any_site: Site) -> None:
    html = html_of(any_site.folder / "tokens.html")
    assert not [e for e in elements(html) if "style" in e.attributes]
    assert len((any_site.folder / "tokens.html").read_bytes()) <= 150_000


def test_the_page_and_its_data_name_every_type(encoder_site: Site, tmp_path: Path) -> None:
    study = encoder_site.study
    page = types_page(stack_results(study))
    (sums,) = study.corpus_sums.types.values()
    (rows,) = types_data(study.corpus_sums.types).values()
    assert sorted(row[0] for row in rows) == sorted(sums.names)
    (table,) = every(Table, group_of(page, "all"))
    assert [cells[0] for cells in table.rows] == [Marked(row[0], "bdi") for row in rows][:24]
    counts = [int(row[1].replace(",", "")) for row in rows]
    assert counts == sorted(counts, reverse=True)
    study.save(tmp_path / "study")
    read = Study.load(tmp_path / "study")
    assert read.types.equals(study.types)
