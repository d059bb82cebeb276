"""A word of two hundred letters makes no page wider than its window."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headbook
import tiny
import treebank
from browser import Open, sideways
from sites import PAIR_METRICS, SMALL, Once, make_study

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = "Wort" * 50
SHORT = re.compile("bird|house")
WIDTHS = (390, 1440)
NUMBER = re.compile(r"\d+")  # pages whose addresses differ in numbers alone are of one kind
FOLDED = "for (const folded of document.querySelectorAll('details')) folded.open = true"


def lengthened(text: str) -> str:
    return SHORT.sub(LONG, text)


def write_trees(folder: Path) -> Path:
    trees = (
        tuple(word._replace(form=lengthened(word.form)) for word in tree) for tree in treebank.MANY
    )
    return treebank.write_trees(folder / "trees.conllu", tuple(trees))


def write_encoder(draft: Path) -> None:
    model = tiny.write("bert", draft / "model")
    headbook.render(make_study(write_trees(draft), model), draft / "site")


def write_pair(draft: Path) -> None:
    pairs = tuple(
        (lengthened(source), lengthened(target)) for source, target in treebank.MANY_PAIRS
    )
    inputs = treebank.write_pairs(draft / "pairs.jsonl", pairs)
    study = make_study(inputs, tiny.write("bart", draft / "model"), metrics=PAIR_METRICS)
    headbook.render(study, draft / "site")


def write_comparison(draft: Path) -> None:
    inputs = write_trees(draft)
    studies = (
        make_study(inputs, tiny.write("bert", draft / name, seed), **SMALL)
        for seed, name in enumerate(("one", "other"))
    )
    headbook.compare(tuple(studies), out=draft / "site")


WRITERS: dict[str, Callable[[Path], None]] = {
    "encoder": write_encoder, "pair": write_pair, "comparison": write_comparison,
}  # fmt: skip


def one_a_kind(pages: Iterable[Path]) -> list[Path]:
    """Pages that hold the long word, one of those whose addresses differ in numbers alone."""
    holding = [page for page in pages if LONG in page.read_text(encoding="utf-8")]
    return [*{NUMBER.sub("0", page.as_posix()): page for page in holding}.values()]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_page_is_as_wide_as_its_window(
    once: Once, open_page: Open, kind: str
) -> None:
    """Also with all parts unfolded."""
    site = once(f"long-words-{kind}", WRITERS[kind]) / "site"
    pages = {*one_a_kind(site.rglob("*.html")), site / "index.html", site / "heads.html"}
    assert len(pages) > 3
    for path in sorted(path for path in pages if path.exists()):
        page = open_page(path)
        for unfold in ("0", FOLDED):
            page.evaluate(unfold)
            wider = {width: sideways(page, width) for width in WIDTHS}
            assert wider == dict.fromkeys(WIDTHS, 0), (path, unfold)


def test_the_long_word_is_chosen_in_the_live_sentence(once: Once, open_page: Open) -> None:
    page = open_page(once("long-words-encoder", write_encoder) / "site" / "index.html")
    page.set_viewport_size({"width": 1440, "height": 800})
    page.locator(f".roll thead [data-i]:text-is('{LONG}')").first.click()
    expect(page.locator("[data-chosen]").first).to_have_text(LONG)
    assert [sideways(page, width) for width in WIDTHS] == [0, 0]
