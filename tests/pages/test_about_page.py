"""The page on who made a site, and on origin and licence of texts and model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headbook
from command_line import Run
from headbook.model.checkpoint import ModelFiles, read_license
from headbook.pages.about import about_page, hub_address
from headbook.pages.parts.run_facts import SAMPLE_LICENSE, SAMPLE_SOURCE, text_facts
from headbook.resources import DEMO_PACKAGE, DEMO_SHA256
from headbook.study.manifest import NOT_GIVEN, Manifest
from headbook.study.merging import merge_manifests
from html_pages import html_of, text_of
from sites import Site

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIVEN: dict[str, Any] = {"text_source": "Kowari corpus 2.1", "text_license": "CC BY-SA 4.0"}


@pytest.mark.parametrize(
    ("name", "revision", "address"),
    [
        ("owner/model", COMMIT, f"https://huggingface.co/owner/model/tree/{COMMIT}"),
        ("gpt2", COMMIT, f"https://huggingface.co/gpt2/tree/{COMMIT}"),
        ("model", "sha256:0123", ""),
        ("/home/me/model", COMMIT, ""),
    ],
)
def test_models_of_the_hub_have_an_address(
    small_site: Site, name: str, revision: str, address: str
) -> None:
    model = replace(small_site.study.manifest.model, name=name, revision=revision)
    assert hub_address(model) == address


def facts(manifest: Manifest, base: str = "") -> dict[str, str]:
    """Return the terms of the page with their values."""
    page = about_page(manifest, "@misc{x}", base)
    return {
        term: value if isinstance(value, str) else value.text
        for group in page.blocks
        for symbols in group.blocks  # type: ignore[attr-defined]
        for term, value in getattr(symbols, "pairs", ())
    }


def test_what_nobody_gave_is_not_given(small_site: Site) -> None:
    manifest = small_site.study.manifest
    for term in ("Author", "Address", "Origin of texts", "Licence of texts", "Origin", "Licence"):
        assert facts(manifest)[term] == NOT_GIVEN, term
    given = replace(manifest, author="Ada", **GIVEN)
    named = facts(given, "https://x.example/")
    assert named["Author"] == "Ada"
    assert named["Address"] == "https://x.example/"
    assert named["Origin of texts"] == GIVEN["text_source"]
    assert named["Licence of texts"] == GIVEN["text_license"]


def test_samples_say_that_they_are_made_up_whatever_is_given(small_site: Site) -> None:
    manifest = replace(small_site.study.manifest, **GIVEN)
    (file,) = manifest.inputs
    sample = replace(file, name="sample.txt", sample=True)
    of_samples = replace(manifest, inputs=(sample,))
    assert [*text_facts(of_samples)] == [
        ("Origin of texts", SAMPLE_SOURCE), ("Licence of texts", SAMPLE_LICENSE),
    ]  # fmt: skip
    for _, text in text_facts(replace(manifest, inputs=(sample, file))):
        assert text.startswith("sample.txt: ")
        assert text.endswith(("Kowari corpus 2.1", "CC BY-SA 4.0"))


def test_the_demo_model_comes_from_its_package(small_site: Site) -> None:
    manifest = small_site.study.manifest
    model = replace(manifest.model, revision=f"sha256:{DEMO_SHA256}", license="apache-2.0")
    of_model = facts(replace(manifest, model=model))
    assert DEMO_PACKAGE in of_model["Origin"]
    assert of_model["Licence"] == "apache-2.0"


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\n---\n# Card\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: 'quokka'\n---\n", "quokka"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("---\nlanguage: en\n---\nlicense: mit\n", ""),
        ("# Card\n---\nlicense: mit\n---\n", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_the_licence_is_that_of_the_model_card(
    tmp_path: Path, card: str | None, expected: str
) -> None:
    if card is not None:
        (tmp_path / "README.md").write_bytes(card.encode())
    assert read_license(ModelFiles(tmp_path, "m", "r")) == expected


def test_merged_studies_keep_the_sources_of_both(small_site: Site) -> None:
    first = small_site.study.manifest
    other = replace(first, **GIVEN)
    sample = replace(first, inputs=tuple(replace(file, sample=True) for file in first.inputs))
    assert merge_manifests(first, first).text_source == ""
    assert merge_manifests(other, other).text_source == GIVEN["text_source"]
    assert merge_manifests(first, other).text_source == f"{NOT_GIVEN}; {GIVEN['text_source']}"
    assert merge_manifests(sample, other).text_license == GIVEN["text_license"]
    twice = merge_manifests(merge_manifests(first, other), other)
    assert twice.text_license == f"{NOT_GIVEN}; {GIVEN['text_license']}"


@pytest.mark.slow
def test_options_reach_the_page_and_can_be_replaced(
    tiny_folder: Any, run: Run, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sees a dog.\nA dog sees the cat.\n", encoding="utf-8")
    run(
        "collect", str(texts), "--model", str(tiny_folder("bert")), "--metrics", "sink_share",
        "--importance", "off", "--circuits", "off", "--out", str(tmp_path / "study"),
        "--text-source", GIVEN["text_source"], "--author", "Lovelace, Ada and Babbage, Charles",
    )  # fmt: skip
    manifest = Manifest.read(tmp_path / "study")
    assert manifest.text_source == GIVEN["text_source"]
    assert manifest.text_license == ""
    headbook.render(tmp_path / "study", tmp_path / "site", text_license=GIVEN["text_license"])
    about = text_of(html_of(tmp_path / "site" / "about.html"))
    assert all(text in about for text in GIVEN.values())
    assert "author = {Lovelace, Ada and Babbage, Charles}" in about
    citation = (tmp_path / "site" / "CITATION.cff").read_text(encoding="utf-8")
    assert '- name: "Lovelace, Ada"\n  - name: "Babbage, Charles"' in citation
