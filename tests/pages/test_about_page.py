"""The page on how to cite a site."""

from dataclasses import replace

import pytest

from headbook.pages.about import about_page, hub_address
from html_pages import html_of
from sites import Site

COMMIT = "0123456789abcdef0123456789abcdef01234567"


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


def test_the_page_says_how_to_add_what_the_entry_lacks(small_site: Site) -> None:
    manifest = small_site.study.manifest
    assert not about_page(manifest, "@misc{x, year = {2026}}").has_url
    assert about_page(manifest, "@misc{x,\n  url = {https://x.example/}}").has_url
    html = html_of(small_site.folder / "about.html")
    assert "author = {…}" in html
    assert 'href="methods.html#model"' in html
    commands = html.partition("<details><summary>For who publishes")[2]
    assert "headbook render" in commands
    assert "headbook render" not in html.removesuffix(commands)
