"""Characters that the fonts of figures lack are named, and only these."""

import html
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import vl_convert

import headbook
from headbook.charts import without_glyph
from headbook.charts.theme import FONT
from headbook.errors import HeadbookWarning
from headbook.site.figures import figures
from pdf_files import page_of

GLYPHS = Path(__file__).parents[1] / "inputs/files/glyphs.txt"
NOWHERE = "\U0010ff00"  # of the last private area
NOTHING = rb"\(\\000\\000\) Tj"  # the glyph of number 0, which stands for all that a font lacks


def lacking(text: str) -> set[str]:
    """The characters of a text that a PDF draws, each alone, as glyph 0."""
    found = set()
    for character in {*text} - {*" \n"}:
        text_element = f'<text y="20">{html.escape(character)}</text>'
        pdf = vl_convert.svg_to_pdf(
            '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" '
            f'font-family="{FONT}">{text_element}</svg>'
        )
        contents = page_of(pdf).get_contents()
        assert contents is not None
        if re.search(NOTHING, contents.get_data()):
            found.add(character)
    return found


def test_missing_glyphs_are_those_of_the_pdf() -> None:
    text = GLYPHS.read_text(encoding="utf-8") + "é−≤…" + NOWHERE
    assert {*without_glyph(text)} == lacking(text)
    assert NOWHERE in without_glyph(text)
    assert not {*"é−≤…aZ"} & {*without_glyph(text)}


def glyph_warnings(act: Callable[[], object]) -> list[str]:
    """What is said of characters, one line for all."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    texts = [str(each.message) for each in found if each.category is HeadbookWarning]
    return [text for text in texts if "glyph" in text]


@pytest.mark.slow
def test_figures_name_the_characters_without_a_glyph(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Of all that they draw, and of nothing else; those of the site draw no text of the input."""
    file = tmp_path / "glyphs.txt"
    file.write_text(f"{GLYPHS.read_text(encoding='utf-8')}{NOWHERE} é\n", encoding="utf-8")
    headbook.collect(
        [file], model=str(tiny_folder("bert")), annotator="none", language="none", circuits="off",
        importance="off", metrics="attention_distance", sentence_pages="3",
    ).save(tmp_path / "study")  # fmt: skip
    (line,) = glyph_warnings(
        lambda: figures(tmp_path / "study", tmp_path / "f", ["map-S*-L00-H00*words"])
    )
    drawn = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "f").glob("*.svg"))
    missing = lacking("".join(re.findall(r">([^<]+)<", drawn)))
    assert NOWHERE in missing
    assert f" {len(missing)} characters: {' '.join(sorted(missing))};" in line
    assert glyph_warnings(lambda: headbook.render(tmp_path / "study", tmp_path / "site")) == []
