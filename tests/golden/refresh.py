"""Write the golden pages anew: ``python tests/golden/refresh.py``.

With ``--study``, collect the stored study anew first; needed only when its format changes.
"""

import re
import shutil
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).parent
STUDY = HERE / "study"
COMMAND = "python tests/golden/refresh.py"
PAGES = ("index.html", "heads/L01-H02.html", "metrics/attention_distance.html",
         "sentences/0001.html")  # fmt: skip
OPTIONS = {
    "metrics": "attention_distance,cosine_to_input,vocabulary_rank,nearest_tokens",
    "exemplars": 1,
    "sentence_pages": "1",
    "title": "A stored study",
}
EMPTY = {"meta", "link", "br", "img", "hr", "input", "image"}
PICTURE = re.compile(r"data:image/webp;base64,\S*")  # other versions of libwebp pack otherwise
RUNTIME = re.compile(r"'sha256-[^']*'")  # of live charts, another one with each vl-convert


class _Outline(HTMLParser):
    """Elements and texts, one a line; pictures by their name alone."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._depth = 0
        self._chart = 0  # depth inside a chart, whose geometry depends on fonts

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._chart:
            attributes = "".join(
                f' {name}="{RUNTIME.sub("…", PICTURE.sub("…", v or ""))}"'
                for name, v in sorted(attrs)
            )
            self._line(f"<{tag}{attributes}>")
        if tag in EMPTY:
            return
        self._depth += 1
        self._chart += bool(self._chart) or (tag == "svg" and ("role", "img") in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._depth -= 1
        self._chart -= bool(self._chart)

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._chart:
            self._line(" ".join(data.split()))

    def _line(self, text: str) -> None:
        self.lines.append(" " * self._depth + text)


def outline(page: Path) -> str:
    """Return a page without what fonts and compression decide."""
    from html_pages import html_of

    return outline_of(html_of(page))


def outline_of(html: str) -> str:
    """Return the outline of a page, given its HTML with whatever waits in other files."""
    reader = _Outline()
    reader.feed(html)
    return "\n".join(reader.lines) + "\n"


def stored(name: str) -> Path:
    """Return the golden file of a page."""
    return HERE / (name.replace("/", "-").removesuffix(".html") + ".txt")


def collect_again(place: Path) -> Path:
    """Collect the stored study anew into an empty folder; returns where it is."""
    import tiny
    import treebank
    from sites import make_study

    inputs = treebank.write_trees(place / "trees.conllu")
    study = make_study(inputs, tiny.write("bert", place / "tiny-bert"), **OPTIONS)
    study.save(place / "study")
    return place / "study"


def main() -> None:
    """Write every golden page."""
    sys.path.insert(0, str(HERE.parent / "support"))  # for `html_pages`
    if "--study" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            study = collect_again(Path(folder))
            shutil.rmtree(STUDY)  # the new format may have fewer files
            shutil.copytree(study, STUDY)
    from headbook import render

    with tempfile.TemporaryDirectory() as folder:
        site = render(STUDY, Path(folder) / "site").index.parent
        for name in PAGES:
            stored(name).write_text(outline(site / name), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
