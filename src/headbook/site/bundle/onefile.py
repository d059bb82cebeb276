"""A site as one HTML file that works from a double click: every page, script and table in it.

A small script takes the place of the folder (``templates/onefile.js``). The policy of the file lets
it and the site's own scripts run by their hashes, and nothing else.
"""

import base64
import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from headbook.errors import StudyError
from headbook.resources import folder
from headbook.site.bundle.solid import Block, blocks
from headbook.site.export import walk
from headbook.site.letters import letters
from headbook.site.markup import values
from headbook.site.scripttags import digest
from headbook.site.stylesheet import bare

MARK = '<meta name="generator" content="Headbook, one file">'
# What a folder needs and one file does not: what servers read, and what stands in its own head.
USELESS = {"README.txt", "data/files.json", "robots.txt", "sitemap.xml"}
UNPACK = "assets/unpack.js"
USELESS |= {UNPACK, *(f"assets/{name}" for name in ("favicon.svg", "preview.png", "site.css"))}
RUNTIME = "assets/vega.js"  # a script that waits in the folder as a text of its own
HEAD = 1000  # bytes in which the mark stands
LINKS = re.compile(r'(<a [^>]*?href="?)(?!["#]|[a-z]+:)')
PICTURES = re.compile(r'<img [^>]*?src="?(?!"?data:)[^>]*>')  # files, which its body does not reach
DRAWN = re.compile(r'data-few(?:(?!<img).)*<img[^>]* src="?(?:\.\./)*([^"\s>]+)', re.DOTALL)
LEFT = "Left out of this one file, since the same rows are in it as CSV or Parquet: {}."


def is_ours(file: Path) -> bool:
    """Whether a file is one that `document` has made."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return MARK.encode() in stream.read(HEAD)


def document(site: Path) -> Iterator[str]:
    """The text of the one file, part by part; the same for the same site.

    Without scripts the overview can be read.

    Raises:
        StudyError: the site's scripts know of no single file.
    """
    if not (site / UNPACK).exists():
        raise StudyError(f"{site}: a site of an older Headbook; expected one rendered anew")
    files = dict(_stored(site))
    index = files["index.html"].decode()
    scripts = [text.decode() for name, text in files.items() if _is_code(name)]
    loader = _text(site / UNPACK) + bare(_text(folder("templates") / "onefile.js"))
    style = _text(site / "assets/site.css")
    dropped = ", ".join(_redundant(site))
    yield '<!doctype html>\n<html lang="en"'
    yield f' data-left="{escape(LEFT.format(dropped))}">\n' if dropped else ">\n"
    yield f'<head>\n<meta charset="utf-8">\n{MARK}\n{_policy([loader, *scripts], style)}\n'
    yield from (f"{line}\n" for line in _kept(index))
    icon = base64.b64encode((site / "assets/favicon.svg").read_bytes()).decode()
    yield f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n'
    yield f"<style>{style}</style>\n<script>{loader}</script>\n</head>\n"
    yield f'<body data-root="#/">\n{_still(index, sum(name.endswith(".html") for name in files))}'
    yield from (f"{_element(block)}\n" for block in blocks(files.items()))
    yield "</body>\n</html>\n"


def _stored(site: Path) -> Iterator[tuple[str, bytes]]:
    """What the file holds, by its address in the folder, unpacked: data files as their values."""
    unwanted = USELESS.union(_redundant(site), _drawn(site))
    for file in walk(site):
        name = file.relative_to(site).as_posix()
        if name in unwanted or any(part.startswith(".") for part in Path(name).parts):
            continue
        content = file.read_bytes()
        if name.startswith("data/") and name.endswith(".js"):
            content = values(content.decode())
        if name == RUNTIME:
            content = json.loads(values(content.decode()))[1].encode()
        yield name, content


def _redundant(site: Path) -> list[str]:
    """Files whose rows are there in another one: Parquet beside CSV, large CSV beside Parquet."""
    data = site / "data"
    parquet = [file for file in data.glob("*.parquet") if file.with_suffix(".csv").exists()]
    return [f"data/{file.name}" for file in sorted([*parquet, *data.glob("*.csv.gz")])]


def _drawn(site: Path) -> set[str]:
    """Pictures that scripts draw anew, which nobody sees where all pages need scripts."""
    pages = sorted(site.glob("sentences/*.html"))
    return {name for page in pages for name in DRAWN.findall(_text(page))}


def _is_code(name: str) -> bool:
    return name.startswith("assets/") and name.endswith(".js")


def _element(block: Block) -> str:
    """A block of files as an element that no browser shows or runs."""
    files, columns = (
        escape(json.dumps(each, separators=(",", ":"))).replace("&quot;", '"')
        for each in ([*block.files.items()], block.columns)
    )
    return (
        f"""<script type="text/plain" data-files='{files}' data-columns='{columns}'>"""
        f"{letters(block.content)}</script>"
    )


def _policy(scripts: list[str], style: str) -> str:
    sources = " ".join(sorted({digest(script) for script in scripts}))
    content = (
        f"default-src 'none'; script-src {sources}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


def _kept(index: str) -> Iterator[str]:
    """The lines of the overview's head that concern no other file."""
    head = index.partition("</head>")[0]
    for line in head.splitlines():
        if line.startswith(("<title>", "<meta name=")):
            yield line


def _still(index: str, pages: int) -> str:
    """The body of the overview, for readers without scripts."""
    body = index.partition("<body")[2].partition(">")[2].rpartition("</body>")[0]
    notice = f"This is the overview. The file holds {pages:,} pages; the others need scripts."
    return f'<noscript><p class="warnings">{notice}</p></noscript>' + PICTURES.sub(
        "", LINKS.sub(r"\1#/", body)
    )


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
