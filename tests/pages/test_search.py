"""What the search looks through is what the site holds."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headbook.metrics import all_metrics
from headbook.report.answers.heads import RANKINGS
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.results import stack_results
from headbook.results.formats import head_name
from headbook.site import search
from headbook.site.search import KEYWORDS, RELATION_WORDS, SYNONYMS, find_data
from headbook.site.sites import across_pages
from headbook.study.sentence_data import StoredText
from headbook.study.study import Study
from html_pages import html_of, ids, text_of
from sites import Site, data_of


def addresses(found: Any) -> list[str]:
    """Every address of the search's data."""
    kinds = ("questions", "metrics", "pages", "sentences")
    return [row[1] for kind in kinds for row in found[kind]]


def test_every_address_leads_to_a_page(any_site: Site) -> None:
    for address in addresses(data_of(any_site, "find")):
        path, _, fragment = address.partition("#")
        page = any_site.folder / path
        assert page.is_file(), address
        assert not fragment or "=" in fragment or fragment in ids(html_of(page))


def test_every_page_is_found_but_those_of_heads(any_site: Site) -> None:
    """Which the list of heads has."""
    found = {address.partition("#")[0] for address in addresses(data_of(any_site, "find"))}
    pages = {page.relative_to(any_site.folder).as_posix() for page in any_site.pages}
    heads = {page for page in pages if page.startswith("heads/")}
    assert found == pages - heads - {"404.html"}


def test_each_piece_has_its_sentences(any_site: Site) -> None:
    """Counted by looping over the texts of sentences with a page."""
    sentences = any_site.study.sentence_data.paged
    times, places = Counter[str](), dict[str, list[int]]()
    for sentence in sentences:
        for text in sentence.texts.values():
            for piece in text.pieces:
                name = piece.strip()
                times[name] += 1
                if sentence.number not in places.setdefault(name, []):
                    places[name].append(sentence.number)
    rows = {name: (count, within, few) for name, count, within, few, _ in tokens(any_site)}
    assert {name for name, (count, *_) in rows.items() if count} == {*times} - {""}
    for name, count in times.items():
        assert rows[name] == (count, len(places[name]), places[name][:5])


def tokens(site: Site) -> list[Any]:
    rows: list[Any] = data_of(site, "find")["tokens"]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    return rows


def test_types_of_other_sentences_are_found_too(encoder_site: Site) -> None:
    """Each is marked as one that the page of tokens has."""
    names = {name.removeprefix("##") for name in encoder_site.study.types["token"]}
    assert {row[0] for row in tokens(encoder_site) if row[4]} == names
    assert any(not row[1] for row in tokens(encoder_site))


def test_heads_are_found_by_noun_sentence_and_family(any_site: Site) -> None:
    rows = data_of(any_site, "find")["functions"]
    heads = [h[0] for h in data_of(any_site, "headlist")["heads"]]
    functions = [
        (function, families_of(results))
        for results in any_site.results.values()
        for function in functions_of(results).values()
    ]
    assert heads == [head_name(function.head) for function, _ in functions]
    assert len(rows) == len(functions)
    for (noun, text, words), (function, families) in zip(rows, functions, strict=True):
        assert (noun, text) == (function.noun, function.text.text)
        assert (families[function.family] if function.family else "") in words


def many(study: Study, amount: int) -> Study:
    """The study with so many copies of its first listed sentence in place of all."""
    first = next(s for s in study.sentence_data.sentences.values() if s.listed)
    texts = {
        side: StoredText("water", ("water",), ((0, 5),), (False,), (0,), ("",), 0, False)
        for side in first.texts
    }
    copies = {i: dataclasses.replace(first, index=i, texts=texts) for i in range(amount)}
    return dataclasses.replace(
        study, sentence_data=dataclasses.replace(study.sentence_data, sentences=copies)
    )


def test_only_the_first_sentences_of_very_many_are_searched(small_site: Site) -> None:
    found = find_data(stack_results(many(small_site.study, search.MAX_SEARCHED_SENTENCES + 3)), ())
    assert len(found["sentences"]) == search.MAX_SEARCHED_SENTENCES
    assert found["total"] == search.MAX_SEARCHED_SENTENCES + 3
    assert [row[1:4] for row in found["tokens"] if row[0] == "water"] == [
        [5000, 5000, [1, 2, 3, 4, 5]]
    ]


def test_rankings_are_those_of_the_list_of_heads(encoder_site: Site) -> None:
    page = next(p for p in across_pages(encoder_site.results) if p.path == "heads.html")
    asked: Any = page
    found = data_of(encoder_site, "find")["questions"]
    assert [(row[0], row[1]) for row in found if row[1].startswith("heads.html#")] == [
        (q.text, f"heads.html#{q.view}") for q in asked.rankings
    ]


@pytest.mark.parametrize("name", ["patterns.html", "outputs.html"])
def test_questions_of_a_page_lead_to_their_answers(any_site: Site, name: str) -> None:
    """Each to the heading that asks it; with the answer."""
    found = data_of(any_site, "find")["questions"]
    about = [row for row in found if row[1].startswith(name)]
    html = html_of(any_site.folder / name) if about else ""
    assert bool(about) == (any_site.folder / name).is_file()
    for question, address, text, _ in about:
        part = html.partition(f'id="{address.partition("#")[2]}"')[2] if "#" in address else html
        asked = part.partition(f">{question}</h")[2]
        assert asked, address
        assert text in text_of(asked.partition("<figure")[0]), address


def test_other_names_are_those_of_pages_and_numbers_that_exist(encoder_site: Site) -> None:
    """A page that is renamed must take its other names with it."""
    known = {
        address.partition("#columns")[0] for address in addresses(data_of(encoder_site, "find"))
    }
    metrics = {f"metrics/{name}.html" for name in all_metrics()}
    asked = {f"{each.metric}/{each.label.partition(':')[0]}" for each in RANKINGS}
    assert {*KEYWORDS} <= known | metrics | asked
    assert {name for names in SYNONYMS.values() for name in names if ":" in name} <= {
        *RELATION_WORDS
    }


def test_data_are_no_part_of_the_first_load(small_site: Site) -> None:
    html = html_of(small_site.folder / "index.html")
    assert "data/find.js" not in html
    assert "data/map.js" not in html
    assert Path(small_site.folder / "data/find.js").is_file()
