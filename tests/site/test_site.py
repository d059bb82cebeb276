"""A written site is whole, self-contained, within its budgets, and the same every time."""

import os
import platform
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import headbook
from headbook import resources
from headbook.pages.metrics.depth import NAMES
from headbook.report.facts.depth import CHANGE
from headbook.results.formats import metric_page
from headbook.site.assets import bare, compact
from headbook.study.circuits import OutputSpace
from html_pages import (
    broken_links,
    differing,
    elements,
    html_of,
    ids,
    links,
    text_of,
    tree,
)
from sites import SOMEBODY, Site

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'"
)
FORBIDDEN = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")
KB = 1000
# Kilobytes that folders of a site may take: 24 sample sentences, 5 metrics, 72 heads with what they
# write, and the metrics of circuits.
SAMPLE = {
    "heads": 3_600, "data/heads": 400, "data/later": 160, "sentences": 900, "data/sentences": 500,
    "figures": 700, "metrics": 390, "data/charts": 60,
}  # fmt: skip


def own_scripts(site: Site) -> list[Path]:
    """The scripts of the site."""
    return sorted((site.folder / "assets").glob("*.js"))


def expected_pages(site: Site) -> set[str]:
    """The pages that follow from what was studied."""
    study = site.study
    pages = {"index.html", "methods.html", "data.html", "about.html", "404.html"}
    pages |= {"metrics/index.html", "sentences/index.html", "speech.html"}
    pages |= {"syntax.html", "heads.html", "importance.html"}
    pages |= {"tokens.html"} if len(study.types) else set()
    pages |= {"similar.html"} if len(study.pairs) else set()
    pages |= {"alignment.html"} if any(s.crosses for s in study.manifest.stacks) else set()
    for stack in study.manifest.stacks:
        prefix = "" if stack.name == "self" else f"{stack.name}-"
        heads = [(layer, head) for layer in stack.attention_layers for head in range(stack.n_heads)]
        pages |= {f"heads/{prefix}L{layer:02}-H{head:02}.html" for layer, head in heads}
    tables = (study.heads, study.layers, study.pairs, study.geometry)
    metrics = {metric for table in tables for metric in table["metric"][table["value"].notna()]}
    states = {*study.words["metric"]} & {
        "cosine_to_input", "vocabulary_rank", "neighbour_overlap", "mixing_ratio", "rollout_self",
        "rollout_self_measured",
    }  # fmt: skip
    pages |= {"geometry.html"} if len(study.geometry) or states else set()
    pages |= {"patterns.html"} if "sink_share" in metrics else set()
    pages |= {"outputs.html"} if "context_similarity" in metrics else set()
    changes = study.tests[study.tests["claim"] == CHANGE]
    seen = {*zip(changes["metric"], changes["view"], strict=True)}
    pages |= {"depth.html"} if seen & {(key.metric, str(key.view)) for key in NAMES} else set()
    metrics |= {"anchor_token"} if study.corpus_sums.anchors else set()
    pages |= {metric_page(metric).partition("#")[0] for metric in metrics}
    is_language_model = study.circuits.space is OutputSpace.UNEMBEDDING
    pages |= {"circuits.html"} if is_language_model and len(study.composition) else set()
    return pages | {
        f"sentences/{sentence.number:04}.html" for sentence in study.sentence_data.paged
    }


def test_every_page_is_there_and_no_other(any_site: Site) -> None:
    found = {page.relative_to(any_site.folder).as_posix() for page in any_site.pages}
    assert found == expected_pages(any_site)


def test_every_file_of_the_folder_is_there(any_site: Site) -> None:
    files = tree(any_site.folder)
    for name in ("CITATION.cff", "references.bib", "README.txt", ".nojekyll", "assets/site.js"):
        assert name in files
    assert {"site.css", "LICENSES.txt", "favicon.svg"} <= {Path(name).name for name in files}
    assert any(name.startswith("figures/") for name in files)


@pytest.mark.soak
@pytest.mark.slow
def test_folders_of_a_site_of_sample_sentences_keep_within_their_sizes(tmp_path: Path) -> None:
    """With the demo model, as the command ``demo`` makes it, but of fewer sentences and metrics."""
    lines = (resources.folder("sample_inputs") / "sentences.conllu").read_text().split("\n\n")[:24]
    (tmp_path / "few.conllu").write_text("\n\n".join(lines) + "\n\n")
    some = "attention_distance,attention_to,relation_accuracy,cosine_to_input,nearest_tokens"
    study = headbook.collect(
        [tmp_path / "few.conllu"],
        model=str(resources.demo_model()),
        metrics=some,
        sentence_pages="6",
    )
    summary = headbook.render(study, tmp_path / "site", processes=1)
    counts: Counter[str] = Counter()
    for name, content in tree(tmp_path / "site").items():
        counts[name.rpartition("/")[0]] += len(content)
    assert not {name: counts[name] for name, most in SAMPLE.items() if counts[name] > most * KB}
    assert summary.size == counts.total() <= 9_500 * KB


def test_every_link_leads_to_a_file_of_the_site(any_site: Site) -> None:
    for page in any_site.pages:
        assert broken_links(any_site.folder, page) == [], page


def test_nothing_is_loaded_from_elsewhere(any_site: Site) -> None:
    for page in any_site.pages:
        outside = {tag for tag, link in links(html_of(page)) if re.match(r"\w*:?//", link)}
        assert outside <= {"a"}
    styles = (any_site.folder / "assets/site.css").read_text()
    assert not re.search(r"url\(|@import|https?:|//", styles)
    for script in own_scripts(any_site):
        assert "//" not in re.sub(r"/\*.*?\*/", "", script.read_text(), flags=re.DOTALL), script


def test_nothing_in_a_page_can_run_or_style_itself(any_site: Site) -> None:
    for page in any_site.pages:
        html = html_of(page)
        for tag, attributes in elements(html):
            assert tag not in {"style", "iframe", "object", "embed", "base", "form"}, page
            assert not [name for name in attributes if name == "style" or name.startswith("on")]
        scripts = [Path(e.attributes["src"]).name for e in elements(html, "script")]
        assert scripts[0] == "site.js"
        assert {*scripts} <= {script.name for script in own_scripts(any_site)}
        assert {*re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)} == {""}


def test_our_script_makes_text_never_markup(any_site: Site) -> None:
    assert "textContent" in (any_site.folder / "assets/site.js").read_text()
    for script in own_scripts(any_site):
        assert not [word for word in FORBIDDEN if word in script.read_text()], script


def test_every_page_has_its_frame(any_site: Site) -> None:
    """Policy, language, one title, one heading, one main part, a footer with the provenance."""
    titles = Counter[str]()
    for page in any_site.pages:
        html = html_of(page)
        assert html.startswith("<!doctype html>\n")
        metas = [meta.attributes for meta in elements(html, "meta")]
        assert {"http-equiv": "Content-Security-Policy", "content": POLICY} in metas
        assert elements(html, "html")[0].attributes == {"lang": "en"}
        assert [len(elements(html, tag)) for tag in ("h1", "main", "footer")] == [1, 1, 1], page
        assert "sentences. Headbook" in text_of(html)
        titles[re.findall(r"<title>(.*?)</title>", html)[0]] += 1
    assert set(titles.values()) == {1}


def test_ids_are_unique_on_a_page(any_site: Site) -> None:
    for page in any_site.pages:
        assert [name for name, count in Counter(ids(html_of(page))).items() if count > 1] == []


def test_what_is_not_available_is_one_line_at_the_end(any_site: Site) -> None:
    """After every heading, picture and table, with the place that tells all of it."""
    lines = 0
    for page in any_site.pages:
        main = html_of(page).partition("<main")[2].partition("</main>")[0]
        before, line, after = main.partition('<p class="hint absent">Not available: ')
        lines += bool(line)
        assert "Not available: " not in before + after, page
        if line:
            assert 'methods.html#gaps">All that is missing</a></p>' in after
            assert not [e for e in elements(after) if e.tag not in {"a", "p"}], page
    assert lines or not any_site.study.manifest.gaps


def test_a_style_sheet_is_written_without_what_browsers_skip() -> None:
    style = """a, b { c: d; }
/* why: { */
@media (w: 1px) {
  .e :is(.f, .g)::after { h: " ▲" / ""; }
}
"""
    assert compact(style) == 'a,b{c:d}@media (w:1px){.e :is(.f,.g)::after{h:" ▲" / ""}}\n'


def test_scripts_lose_their_comments_and_nothing_else() -> None:
    """Also where code follows a comment on its line, as after the type of a value."""
    script = """/* About it,
   in lines. */
  /** @type {number} */
  const a = /** @type {any} */ (b);
  /** @type {any} */ (a).c();

  d(); /* here */
  try { e(); } catch { /* never mind */ }
  /* there */
"""
    kept = ("const a = (b);", "(a).c();", "d();", "try { e(); } catch { /* never mind */ }")
    assert bare(script) == "".join(f"{line}\n" for line in kept)


def test_the_site_keeps_within_its_budgets(any_site: Site) -> None:
    for page in any_site.pages:
        html, size = html_of(page), page.stat().st_size
        limit = 80 if page.parent.name == "heads" else 200 if page.name == "index.html" else 300
        assert size <= limit * KB, page
        assert len(elements(html)) <= 5000, page
        charts = [e for e in elements(html, "figure") if e.attributes.get("class") == "chart"]
        assert len(charts) <= 8, page
    waiting = [*(any_site.folder / "data/later").iterdir()]
    assert max(file.stat().st_size for file in waiting) <= 12 * KB
    ours = [any_site.folder / "assets" / name for name in ("site.css", "site.js")]
    assert sum(file.stat().st_size for file in ours) <= 60 * KB
    for page in any_site.pages:
        scripts = [Path(e.attributes["src"]).name for e in elements(html_of(page), "script")]
        loaded = [any_site.folder / "assets" / name for name in scripts]
        assert sum(file.stat().st_size for file in loaded) <= 60 * KB
    assert all(len(content) < 10_000 * KB for content in tree(any_site.folder).values())


def test_no_file_names_the_machine_or_its_user(any_site: Site) -> None:
    """Neither in the site nor in the study, columns and metadata of tables included."""
    private = {str(Path.home()), str(any_site.place), str(Path(headbook.__file__).parent), SOMEBODY}
    private |= {"/tmp/"} | {name for name in [platform.node()] if len(name) > 6}  # noqa: S108
    for folder in (any_site.folder, any_site.stored):
        for name, content in tree(folder).items():
            assert not [word for word in private if word.encode() in content], name


@pytest.mark.slow
def test_rendering_again_writes_the_same_bytes(small_site: Site, tmp_path: Path) -> None:
    """From the stored study as from the fresh one, with which the site was written."""
    summary = headbook.render(small_site.stored, tmp_path / "again")
    assert differing(small_site.folder, tmp_path / "again") == []
    assert summary.index == tmp_path / "again" / "index.html"
    assert summary.pages == len(small_site.pages)
    assert summary.size == sum(map(len, tree(tmp_path / "again").values()))


def in_another_process(site: Site, out: Path, processes: int) -> None:
    """Render with another hash seed, locale, time zone and folder, and see what was imported."""
    code = (
        "import sys, headbook;"
        f"headbook.render(sys.argv[1], sys.argv[2], processes={processes});"
        "print({'torch', 'transformers', 'spacy'} & set(sys.modules))"
    )
    world = os.environ | {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo", "COLUMNS": "20"}
    world.pop("SOURCE_DATE_EPOCH", None)
    done = subprocess.run(
        [sys.executable, "-c", code, str(site.stored), str(out)],
        check=True, capture_output=True, text=True, env=world, cwd=out.parent,
    )  # fmt: skip
    assert done.stdout == "set()\n"
    overview, *others = done.stderr.splitlines()
    assert overview.startswith("overview, while the rest is made: ")
    assert not others


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_another_process_writes_the_same_bytes_without_any_model_library(
    processes: int, small_site: Site, tmp_path: Path
) -> None:
    """From the stored study, by one process or two; by one, from memory, in the site beside it."""
    in_another_process(small_site, tmp_path / "site", processes)
    assert differing(small_site.folder, tmp_path / "site") == []
