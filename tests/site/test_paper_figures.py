"""Figures alone, in LaTeX and BibTeX."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headbook.charts import layers
from headbook.errors import ConfigError, OutputError
from headbook.pages.parts.page import SiteFacts
from headbook.site import latex
from headbook.site.figures import figures, study_figures
from html_pages import differing, tree
from sites import Site

pytestmark = pytest.mark.slow

KINDS = (".csv", ".pdf", ".svg", "-column.pdf", "-column.svg")
ONLY = ("attention_distance-*", "vocabulary_rank-self-layers")
CHOSEN = [
    "attention_distance-self-heads", "attention_distance-self", "attention_distance-self-layers",
    "vocabulary_rank-self-layers",
]  # fmt: skip
OBJECT = "obj:to_head"
LABELLED = ["relation_accuracy"]
COMMANDS = re.compile(r"\\[%&#_$,]|\\[a-z]+\{\}|\$[^$]*\$", re.IGNORECASE)
HOSTILE = '100 % of a_b & #1 {x} \\end{figure} ~ ^ $\n" “q” 3 × √2 → −1 … < > | \u202f\xa0'


@pytest.mark.slow
def test_figures_alone_are_the_files_of_the_site(small_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert figures(small_site.stored, out, ONLY) == CHOSEN
    found = tree(out)
    texts = {"figures.tex", "figures.bib", "manifest.json", "files.json"}
    assert set(found) == texts | {f"{name}{kind}" for name in CHOSEN for kind in KINDS}
    for name in set(found) - texts:
        if "-column" in name:  # as wide as a column where they are asked for
            continue
        assert found[name] == (small_site.folder / "figures" / name).read_bytes(), name
    again = tmp_path / "again"
    figures(small_site.study, again, ONLY)
    assert differing(out, again) == []


@pytest.mark.slow
def test_without_names_all_figures_are_written(small_site: Site, tmp_path: Path) -> None:
    names = figures(small_site.stored, tmp_path / "all")
    there = {file.stem for file in (small_site.folder / "figures").glob("*.csv")}
    assert set(names) == there
    assert len(names) == len(there) > len(CHOSEN)


def test_every_figure_has_an_environment_and_an_entry(small_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    figures(small_site.stored, out, ONLY)
    tex, bib = ((out / f"figures.{kind}").read_text(encoding="utf-8") for kind in ("tex", "bib"))
    pattern = re.compile(
        r"\\begin\{figure(\*?)\}\s+\\centering\s+\\includegraphics\{(.*?)(-column)?\.pdf\}"
    )
    included = pattern.findall(tex)
    assert [name for _, name, _ in included] == CHOSEN
    assert all((star == "*") == (not column) for star, _, column in included)  # as wide as a page
    assert tex.count(r"\end{figure") == len(CHOSEN)
    labels = re.findall(r"\\label\{fig:([a-zA-Z0-9-]+)\}", tex)
    cited = re.findall(r"\\cite\{headbook-([a-zA-Z0-9-]+)\}", tex)
    entries = re.findall(r"^@misc\{headbook-([a-zA-Z0-9-]+),$", bib, re.MULTILINE)
    assert labels == cited == entries == [name.replace("_", "-") for name in CHOSEN]
    titles = re.findall(r"^  title = \{(.*)\},$", bib, re.MULTILINE)
    model = latex.escaped(small_site.study.manifest.model.name)
    assert all(model in title for title in titles)
    assert titles[0].startswith("Attention distance of every head")
    drawn = {figure.name: figure for figure in study_figures(small_site.study)}
    captions = re.findall(r"\\caption\{(.*)\}\n", tex)
    source = SiteFacts.of(small_site.study.manifest, sentence_pages=True).source
    for name, caption in zip(CHOSEN, captions, strict=True):
        reported = f"{drawn[name].caption} {source}"
        assert caption == latex.escaped(reported)
        assert re.sub(r"\\(?=[%_])", "", caption).replace(r"\,", " ") == reported


def test_a_name_that_no_figure_has_is_refused_with_names_near_it(
    small_site: Site, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="'atention_distance-self' is the name of no figure") as e:
        figures(small_site.stored, tmp_path / "out", ["atention_distance-self"])
    assert "such as attention_distance-self, " in str(e.value)
    assert "\n" not in str(e.value)
    with pytest.raises(ConfigError, match="'zz\\*'"):
        figures(small_site.stored, tmp_path / "out", [*ONLY, "zz*"])
    assert not (tmp_path / "out").exists()


def test_what_was_not_measured_is_not_offered(small_site: Site, tmp_path: Path) -> None:
    message = "'profile-L00-H01' is the name of no figure; the study has no offset_profile"
    with pytest.raises(ConfigError, match=message) as e:
        figures(small_site.stored, tmp_path / "out", ["profile-L00-H01"])
    assert "profile-L00" not in str(e.value).partition(";")[2]


@pytest.mark.slow
def test_only_a_folder_of_headbook_is_replaced(small_site: Site, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    figures(small_site.stored, out, ONLY)
    assert "headbook" in json.loads((out / "manifest.json").read_text())
    with pytest.raises(OutputError, match="pass force=True to"):
        figures(small_site.stored, out, ONLY[1:])
    assert figures(small_site.stored, out, ONLY[1:], force=True) == CHOSEN[3:]
    assert not (out / f"{CHOSEN[0]}.pdf").exists()
    (foreign := tmp_path / "foreign").mkdir()
    (foreign / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="did not write"):
        figures(small_site.stored, foreign, force=True)


@given(st.text())
@example(HOSTILE)
def test_no_text_is_a_command_of_latex(text: str) -> None:
    """What is left beside known commands has no character that LaTeX would read as one."""
    reported = latex.escaped(text)
    assert not set(COMMANDS.sub("", reported)) & set("\\%&#_${}^\n")
    depth = np.cumsum([{"{": 1, "}": -1}.get(letter, 0) for letter in reported])
    assert not len(depth) or (depth.min() >= 0 and depth[-1] == 0)


def test_hostile_names_stay_inside_caption_and_entry() -> None:
    rows = pd.DataFrame({"layer": [0], "series": "model", "value": [1.0], "view": "raw"})
    rows = rows.assign(low=0.5, high=1.5)
    figure = layers.layer_curve("a_b", f"{HOSTILE}.", rows, title="t")
    snippet = latex.snippet(figure, HOSTILE)
    assert snippet.count(r"\end{figure}") == 1
    (line,) = re.findall(r"\n  \\caption\{(.*)\}\n", snippet)
    assert line == latex.escaped(f"{HOSTILE}. {HOSTILE}")
    site = SiteFacts(HOSTILE, HOSTILE, HOSTILE, HOSTILE, sentence_pages=False)
    entry = latex.entry(figure, site, "2023")
    assert entry.count("{") == entry.count("}")
    assert entry.count("\n") == 7
    assert latex.latex_key(figure) == "a-b"


def test_attention_by_offset_of_a_head_is_drawn_where_it_is_asked_for(
    decoder_site: Site, tmp_path: Path
) -> None:
    out = tmp_path / "figures"
    assert figures(decoder_site.stored, out, ["profile-L01-*"])[0] == "profile-L01-H00"
    heads = decoder_site.study.heads
    of_head = heads[(heads.metric == "offset_profile") & (heads.layer == 1) & (heads["head"] == 2)]
    view = decoder_site.study.manifest.stacks[0].default_view
    displayed = of_head[of_head["view"] == str(view)].set_index("label")
    rows = pd.read_csv(out / "profile-L01-H02.csv")
    assert [*rows["offset"]] == [*range(-8, 1)]
    for row in rows.itertuples():
        expected: Any = displayed.loc[str(row.offset)]
        assert row.value == pytest.approx(expected.value, rel=6e-6)
        # Ends have as many digits as a hundredth of the interval.
        width = float(expected.high - expected.low)
        assert [row.low, row.high] == pytest.approx(
            [expected.low, expected.high], abs=0.01 * width + 1e-9, nan_ok=True
        )
    assert (out / "profile-L01-H02.pdf").read_bytes().startswith(b"%PDF")
    assert r"\label{fig:profile-L01-H02}" in (out / "figures.tex").read_text(encoding="utf-8")
    assert not any(
        figure.name.startswith("profile") for figure in study_figures(decoder_site.study)
    )


def test_a_figure_shows_the_label_and_the_view_that_are_asked_for(
    small_site: Site, tmp_path: Path
) -> None:
    out, heads = tmp_path / "figures", small_site.study.heads
    (usual,) = {*pd.read_csv(small_site.folder / "figures" / "attention_to-self.csv")["view"]}
    for label, asked in (
        ("self", "self"),
        ("same_token", "other occurrences of the token"),
    ):
        for view in ("", "raw", "renorm"):
            names = figures(
                small_site.stored, out, ["attention_to"], label=asked, view=view, force=True
            )
            ending = f"-{view}" if view and view != usual else ""
            assert names[0] == f"attention_to-self-{label}{ending}"
            table = pd.read_csv(out / f"{names[0]}.csv").sort_values(["layer", "head"])
            wanted = heads[
                (heads["metric"] == "attention_to")
                & (heads["label"] == label)
                & (heads["view"] == (view or usual))
            ].sort_values(["layer", "head"])
            assert len(table) == len(wanted) == 8
            assert [*table["value"]] == pytest.approx([*wanted["value"]], rel=6e-6)
            assert (
                rf"\includegraphics{{{names[0]}-column.pdf}}" in (out / "figures.tex").read_text()
            )


def test_a_lone_name_is_one_name(small_site: Site, tmp_path: Path) -> None:
    for only in ("attention_distance", "attention_distance-*"):
        names = figures(small_site.stored, tmp_path / "lone", only, force=True)
        assert names == figures(small_site.stored, tmp_path / "list", [only], force=True)
        assert names
        assert all(name.startswith("attention_distance-") for name in names)
    for label in ("self", "same_token"):
        (name, *_) = figures(
            small_site.stored, tmp_path / "lone", "attention_to", label=label, force=True
        )
        assert name == f"attention_to-self-{label}"


def test_what_is_no_name_is_refused(small_site: Site, tmp_path: Path) -> None:
    wrong: list[Any] = [3, ["attention_distance", 3]]
    for only in wrong:
        with pytest.raises(ConfigError, match="only: got 3, expected"):
            figures(small_site.stored, tmp_path / "out", only)
    assert not (tmp_path / "out").exists()


def test_the_label_of_the_site_gives_the_file_of_the_site(
    encoder_site: Site, tmp_path: Path
) -> None:
    out = tmp_path / "figures"
    (name, *_) = figures(encoder_site.stored, out, ["relation_accuracy-self"], label=OBJECT)
    file = f"{name}.csv"
    assert (out / file).read_bytes() == (encoder_site.folder / "figures" / file).read_bytes()


@pytest.mark.parametrize(
    "refused",
    [
        (LABELLED, "case:to_hed", "", f"label: got 'case:to_hed', expected a label of "
         f"relation_accuracy: {OBJECT}, acl:to_head, amod:to_head, "),
        (["attention_distance"], "x", "", "label: got 'x', but attention_distance has no labels"),
        (["vocabulary_rank-*-mid-*"], "x", "",
         "'x', but vocabulary_rank-self-layers-mid-positional, "
         "vocabulary_rank-self-layers-mid-raw have no labels"),
        (LABELLED, OBJECT, "all", "view: got 'all', expected a view of relation_accuracy, label "
         f"{OBJECT}: nosink"),
        (["vocabulary_rank-self-layers"], "", "raw", "'raw', but vocabulary_rank-self-layers has "
         "no views"),
    ],
)  # fmt: skip
def test_a_label_or_view_that_no_figure_has_is_refused_with_those_there_are(
    encoder_site: Site, tmp_path: Path, refused: tuple[list[str], str, str, str]
) -> None:
    only, label, view, message = refused
    with pytest.raises(ConfigError, match=re.escape(message)) as e:
        figures(encoder_site.stored, tmp_path / "out", only, label=label, view=view)
    assert "\n" not in str(e.value)
    assert not (tmp_path / "out").exists()
