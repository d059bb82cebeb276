"""The pictures of README and gallery: made of any site, and those that are there fit their page."""

import re
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser

import gallery
from code_blocks import ROOT, read
from sites import Site

pytest_plugins = ["browser_windows"]
DOCS = ROOT / "docs"
LARGEST = 1_500_000  # bytes of all pictures


def pictures(folder: Path) -> set[str]:
    """Pictures below a folder, by their address there."""
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*.webp")}


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.browser
def test_a_gallery_is_made_of_a_site(
    encoder_site: Site,
    cross_encoder_study: Path,
    chromium: Browser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same pictures, of the same sizes, as those that are there; old ones go."""
    monkeypatch.setattr(gallery, "WAIT", 100)
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "old.webp").touch()
    gallery.make(encoder_site.folder, cross_encoder_study / "site", tmp_path, chromium)
    assert pictures(tmp_path) == pictures(DOCS)
    for shot in gallery.SHOTS:
        with Image.open(tmp_path / "gallery" / f"{shot.name}.webp") as image:
            assert image.size == (gallery.WIDTH, 600)
            assert len(image.convert("RGB").getcolors(1 << 20) or ()) > 50, shot.name
    first, dark = (tmp_path / "gallery" / f"{name}.webp" for name in ("overview", "overview-dark"))
    assert brightness(first) > 2 * brightness(dark)
    assert re.search(r"\nL[01]·H[0-3], the head", read(tmp_path / "gallery.md"))


def brightness(file: Path) -> float:
    """The mean of a picture's greys, 0 to 255."""
    with Image.open(file) as image:
        grey = image.convert("L").histogram()
    return sum(value * n for value, n in enumerate(grey)) / sum(grey)


def test_the_gallery_that_is_there_is_what_the_script_writes() -> None:
    """But for the name of the head."""
    text = read(DOCS / "gallery.md")
    names = re.findall(r"L\d+·H\d+", text)
    assert len(names) == 1
    assert gallery.text({"head_name": names[0]}) == text


def test_pictures_are_small_and_each_is_shown() -> None:
    displayed = read(DOCS / "gallery.md") + read(ROOT / "README.md")
    assert pictures(DOCS)
    for picture in pictures(DOCS):
        assert picture in displayed
    assert sum((DOCS / each).stat().st_size for each in pictures(DOCS)) < LARGEST
