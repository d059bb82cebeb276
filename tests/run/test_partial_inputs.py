"""A site of a part of the input says so wherever it says how many sentences it is of."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chosen_results import manifest
from headbook import Study, collect, render
from headbook.pages.parts.page import coverage, input_names, input_rows
from headbook.site.archive import anonymise
from headbook.study.input_facts import InputFacts
from headbook.study.manifest import Manifest
from headbook.study.study import merge
from layers import SELF

TEXTS = [f"the old dog number {number} sees a house" for number in range(12)]


def facts(name: str, sentences: int, left: int | None = 0, blank: int = 0) -> InputFacts:
    return InputFacts(name, "0" * 64 if sentences or blank else "", sentences, blank, left)


def of(*inputs: InputFacts, passages: int | None = None, **options: int) -> Manifest:
    taken = sum(file.sentences for file in inputs)
    bare = manifest(SELF, passages or taken, "m")
    return replace(bare, inputs=inputs, options={**bare.options, **options})


WHOLE, UNREAD = facts("a.txt", 800), facts("c.txt", 0, None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of(WHOLE, facts("b.txt", 200)), "1,000 sentences"),
        (of(facts("b.txt", 1)), "1 sentence"),
        (of(WHOLE, facts("b.txt", 200), limit=1000), "1,000 sentences"),
        (of(WHOLE, facts("b.txt", 200), sample=5000), "1,000 sentences"),
        (
            of(WHOLE, facts("b.txt", 200, None), UNREAD, limit=1000),
            "1,000 sentences (the first of the input)",
        ),
        (
            of(WHOLE, facts("b.parquet", 200, 4000), limit=1000),
            "1,000 sentences (the first of 5,000)",
        ),
        (
            of(facts("a.txt", 30, 970), facts("b.txt", 70, 23_930), sample=100),
            "100 sentences (of 25,000, those with the smallest content hashes)",
        ),
        (
            of(WHOLE, UNREAD, passages=50, limit=800),
            "50 sentences (from the first 800 of the input)",
        ),
        (of(facts("a.txt", 50, 10), facts("b.txt", 50, 90), sample=50), "100 sentences (of 200)"),
        (of(WHOLE, facts("b.txt", 800, None), limit=800), "1,600 sentences (a part of the input)"),
    ],
)
def test_a_part_is_said_with_the_whole_where_that_is_known(found: Manifest, expected: str) -> None:
    assert coverage(found) == expected


def test_each_input_says_what_was_taken_of_it() -> None:
    found = of(
        facts("a.txt", 800, blank=3), facts("b.txt", 150, None), facts("c.parquet", 50, 950), UNREAD
    )
    assert [value for _, value in input_rows(found)] == [
        "a.txt · 800 sentences · 3 blank lines skipped",
        "b.txt · the first 150 sentences",
        "c.parquet · 50 of 1,000 sentences",
        "c.txt · not read",
    ]


def test_many_inputs_do_not_fill_every_page() -> None:
    many = of(*(facts(f"part-{number}.parquet", 10) for number in range(1000)))
    assert input_names(many) == (
        "part-0.parquet, part-1.parquet, part-2.parquet and 997 more inputs"
    )
    rows = [value for _, value in input_rows(many)]
    assert len(rows) == 11
    assert rows[-1] == "990 more inputs · 9,900 sentences"
    assert input_names(of(*many.inputs[:4])).endswith("part-2.parquet, part-3.parquet")
    assert len([*input_rows(of(*many.inputs[:11]))]) == 11
    assert input_names(of(WHOLE, UNREAD)) == "a.txt"
    nothing = InputFacts("b.txt", "0" * 64, 0, 0, 20)
    assert input_names(of(facts("a.txt", 5, 25), nothing, sample=5)) == "a.txt, b.txt"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("inputs")
    files = [folder / "a.txt", folder / "b.txt"]
    for file, part in zip(files, (TEXTS[:4], TEXTS[4:]), strict=True):
        file.write_text("\n".join(part))
    return files


Maker = Callable[..., Study]


@pytest.fixture(scope="module")
def study(inputs: list[Path], tiny_folder: Callable[[str], Path]) -> Maker:
    return lambda **options: collect(
        inputs,
        model=str(tiny_folder("bert")),
        metrics="attention_distance",
        annotator="none",
        importance="off",
        sentence_pages="1",
        **options,
    )


def text(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_a_site_of_a_sample_says_so(study: Maker, tmp_path: Path) -> None:
    found = study(sample=5)
    assert found.manifest.options["sample"] == 5
    assert sum(file.sentences for file in found.manifest.inputs) == 5
    assert [f.sentences + (f.left or 0) for f in found.manifest.inputs] == [4, 8]
    assert Manifest.from_json(found.manifest.to_json()) == found.manifest
    render(anonymise(found), tmp_path / "site")
    expected = "5 sentences (of 12, those with the smallest content hashes)"
    for page in ("index.html", "methods.html", "about.html"):
        assert expected in text(tmp_path / "site" / page), page
    assert "5 sentences were taken" in text(tmp_path / "site" / "methods.html")


def test_parts_add_up(study: Maker) -> None:
    both = merge([study(limit=6), study(limit=3)])
    assert [(f.sentences, f.left) for f in both.manifest.inputs] == [
        (4, 0), (2, None), (3, None), (0, None),
    ]  # fmt: skip
    assert coverage(both.manifest) == "9 sentences (a part of the input)"


def test_studies_of_older_versions_are_of_all_they_read(study: Maker) -> None:
    old = study(limit=12).manifest.to_json().replace('"left": 0,\n', "")
    assert '"left"' not in old
    assert coverage(Manifest.from_json(old)) == "12 sentences"
