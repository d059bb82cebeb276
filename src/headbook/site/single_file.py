"""A site as one HTML file that works from a double click: every page, script and table in it.

Files that are compressed in the folder are left out (figures as PDF, Parquet, large tables): gzip
cannot make them smaller, and base64 would make them larger by a third.

A small script takes the place of the folder (``templates/onefile.js``). The policy of the file lets
it and the site's own scripts run by their hashes, and nothing else.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

from headbook.errors import StudyError
from headbook.pages.parts.sentence_maps import FOLDER as NEURONS
from headbook.resources import folder
from headbook.site.assets import bare, digest
from headbook.site.markup import gzipped, values

GENERATOR_TAG = '<meta name="generator" content="Headbook, one file">'
# Files that only a folder needs: servers read them, or the head of the one file has their content.
FOLDER_ONLY_FILES = {"README.txt", "data/files.json", "robots.txt", "sitemap.xml", ".nojekyll"}
UNPACK_SCRIPT, ICON = "assets/gunzip.js", "assets/favicon.svg"
FOLDER_ONLY_FILES |= {UNPACK_SCRIPT, ICON, "assets/preview.png"}
SHEETS = re.compile(r'<link rel="stylesheet" href="assets/([\w-]+)\.css">')
SUM = "<!-- sha256 {} -->\n"  # last line of the file, with the sum of all before it
BLOCK_BYTES = 1 << 20  # read at a time to compute the sum
STYLE, SENTENCE_PAGE = re.compile(r"assets/[^/]*\.css"), re.compile(r"sentences/[^/]*\.html")
HEAD_ROWS = re.compile(r"data/numbers/.*")  # the file has the table of all heads instead
LINKS = re.compile(r'(<a [^>]*?href=")(?!["#]|[a-z]+:)')
# Pictures in files, which readers without scripts cannot see in the one file.
PICTURES = re.compile(r'<img [^>]*?src="(?!data:)[^>]*>')
DRAWN_PICTURES = re.compile(r'data-few(?:(?!<img).)*<img[^>]* src="(?:\.\./)*([^"]+)', re.DOTALL)
MAX_BLOCK_BYTES = 6_000_000  # of files that are decompressed together; a larger file is alone
MAX_QUERY_KEY_BYTES = 200_000  # of queries and keys in the file, those of the first sentences
COMPRESSED_SUFFIXES = {".pdf", ".parquet", ".gz"}
LEFT_OUT_MESSAGE = "Left out of this one file, but in the folder of the site: {}."


def is_single_file(file: Path) -> bool:
    """Whether a file is one that `single_file_text` has made and nobody has changed."""
    if not file.is_file():
        return False
    size, digest = len(SUM.format("0" * 64)), hashlib.sha256()
    with file.open("rb") as stream:
        left = file.stat().st_size - size
        while left > 0 and (block := stream.read(min(left, BLOCK_BYTES))):
            digest.update(block)
            left -= len(block)
        return left == 0 and stream.read() == SUM.format(digest.hexdigest()).encode()


def single_file_text(files: Mapping[str, Path]) -> Iterator[str]:
    """Yield the text of the one file, part by part; without scripts, it shows the overview.

    Args:
        files: the site's files by their addresses.

    Raises:
        StudyError: the files are not those of a site of this Headbook.
    """
    digest = hashlib.sha256()
    for part in _unsealed_text(files):
        digest.update(part.encode())
        yield part
    yield SUM.format(digest.hexdigest())


def _unsealed_text(site: Mapping[str, Path]) -> Iterator[str]:
    """Yield the text of the one file without the sum at its end."""
    needed = ("index.html", UNPACK_SCRIPT, ICON)
    missing = next((name for name in needed if name not in site), "")
    if missing or "DecompressionStream" not in _text(site[UNPACK_SCRIPT]):
        why = f"without {missing}" if missing else "with other scripts"
        raise StudyError(f"a site {why}; expected one rendered anew")
    files = dict(_stored(site))
    index = files["index.html"].decode()
    scripts = [text.decode() for name, text in files.items() if _is_code(name)]
    loader = _text(site[UNPACK_SCRIPT]) + bare(_text(folder("templates") / "onefile.js"))
    first = SHEETS.findall(index)  # the overview's; scripts turn others on with their pages
    styles = sorted(file.stem for name, file in site.items() if STYLE.fullmatch(name))
    sheets = {name: _text(site[f"assets/{name}.css"]) for name in dict.fromkeys([*first, *styles])}
    neurons = ["queries and keys of later sentences"] * bool(_later_queries_keys(site))
    kinds = ["figures as PDF", "tables as Parquet", *_missing_tables(site, files), *neurons]
    left_out = LEFT_OUT_MESSAGE.format(", ".join(kinds))
    yield f'<!doctype html>\n<html lang="en" data-left="{escape(left_out)}">\n'
    policy = _policy([loader, *scripts], sheets.values())
    yield f'<head>\n<meta charset="utf-8">\n{GENERATOR_TAG}\n{policy}\n'
    yield from (f"{line}\n" for line in _head_lines(index))
    icon = base64.b64encode(site[ICON].read_bytes()).decode()
    yield f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n'
    for name, rules in sheets.items():
        media = "" if name in first else ' media="not all"'
        yield f'<style data-sheet="{name}"{media}>{rules}</style>\n'
    yield f"<script>{loader}</script>\n</head>\n"
    n_pages = sum(name.endswith(".html") for name in files)
    yield f'<body data-root="#/">\n{_static_overview(index, n_pages)}'
    yield from (f"{_data_element(block)}\n" for block in _blocks(files))
    yield "</body>\n</html>\n"


def _stored(site: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Return the contents of the file by address, data files as their values."""
    unwanted = FOLDER_ONLY_FILES | _redrawn_pictures(site) | _later_queries_keys(site)
    for name, file in site.items():
        if name in unwanted or HEAD_ROWS.fullmatch(name) or file.suffix == ".css":
            continue
        if _is_left_out(file):
            continue
        content = file.read_bytes()
        if name.startswith("data/") and name.endswith(".js"):
            content = values(content.decode())
        yield name, content


def _missing_tables(site: Mapping[str, Path], files: Mapping[str, bytes]) -> list[str]:
    """Return the names of tables and lists that the one file does not hold in any format."""
    tables = [file for name, file in site.items() if name.startswith("data/")]
    names = (file.name.partition(".")[0] for file in tables if _is_left_out(file))
    return [name for name in dict.fromkeys(names) if f"data/{name}.csv" not in files]


def _later_queries_keys(site: Mapping[str, Path]) -> set[str]:
    """Return the files of queries and keys beyond `MAX_QUERY_KEY_BYTES`, by whole sentences."""
    by_sentence: dict[str, list[str]] = {}
    for name in sorted(name for name in site if name.startswith(f"{NEURONS}/")):
        by_sentence.setdefault(name.partition("-")[0], []).append(name)
    used, later = 0, set[str]()
    for names in by_sentence.values():
        used += sum(site[name].stat().st_size for name in names)
        later.update(names if used > MAX_QUERY_KEY_BYTES else ())
    return later


def _is_left_out(file: Path) -> bool:
    return file.suffix in COMPRESSED_SUFFIXES


def _redrawn_pictures(site: Mapping[str, Path]) -> set[str]:
    """Return pictures that scripts draw anew, which need not be in a file that needs scripts."""
    pages = [file for name, file in site.items() if SENTENCE_PAGE.fullmatch(name)]
    return {name for page in pages for name in DRAWN_PICTURES.findall(_text(page))}


def _is_code(name: str) -> bool:
    return name.startswith("assets/") and name.endswith(".js")


def _blocks(files: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Yield files of one folder and one kind together, so that gzip finds what they share."""
    kinds: dict[str, list[str]] = {}
    for name in files:
        kinds.setdefault(_kind(name), []).append(name)
    for names in kinds.values():
        block: dict[str, bytes] = {}
        for name in names:
            if block and sum(map(len, block.values())) + len(files[name]) > MAX_BLOCK_BYTES:
                yield block
                block = {}
            block[name] = files[name]
        yield block


def _kind(name: str) -> str:
    """Return folder and suffix, by which files share a block; tables have their own."""
    folder, _, file = name.rpartition("/")
    if folder == "data":
        return name
    return f"{folder} {file.partition('.')[2]}"


def _data_element(block: Mapping[str, bytes]) -> str:
    """Return files as an element that no browser shows or runs."""
    sizes = json.dumps([[name, len(content)] for name, content in block.items()])
    files = escape(sizes.replace(" ", "")).replace("&quot;", '"')
    text = gzipped(b"".join(block.values()))
    return f"""<script type="text/plain" data-files='{files}'>{text}</script>"""


def _policy(scripts: Iterable[str], sheets: Iterable[str]) -> str:
    sources, styles = (" ".join(sorted({*map(digest, texts)})) for texts in (scripts, sheets))
    content = (
        f"default-src 'none'; script-src {sources}; style-src {styles}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


def _head_lines(index: str) -> Iterator[str]:
    """Return the lines of the overview's head that concern no other file."""
    head = index.partition("</head>")[0]
    for line in head.splitlines():
        if line.startswith(("<title>", "<meta name=")):
            yield line


def _static_overview(index: str, pages: int) -> str:
    """Return the body of the overview, for readers without scripts."""
    body = index.partition("<body")[2].partition(">")[2].rpartition("</body>")[0]
    notice = f"This is the overview. The file holds {pages:,} pages; the others need scripts."
    return f'<noscript><p class="warnings">{notice}</p></noscript>' + PICTURES.sub(
        "", LINKS.sub(r"\1#/", body)
    )


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
