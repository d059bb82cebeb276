"""Outputs of notebooks in a browser: themes, widths, contrast, without scripts and a network."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

from browser import DARK, LIGHT, Open, cramped, sideways, violations
from browser_plain import parsed
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SMOOTHED, FEW_PIXELS = 64, 20  # steps of a colour, of 255; channels of pixels
NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
# Rules of JupyterLab for outputs, as its style sheet has them, and a page around the outputs.
JUPYTER = """<!doctype html><html lang="en"{html}><head><meta charset="utf-8">
<title>Outputs</title><style>
body {{ margin: 0; background: {paper}; color: {ink}; font-family: serif; }}
main {{ padding: 8px; }}
.jp td, .jp th, .jp tr {{ vertical-align: middle; padding: 0.5em; text-align: right; border: 0; }}
.jp table {{ border-collapse: collapse; margin: 0 auto 1em; font-size: 12px; table-layout: fixed; }}
.jp tbody tr:nth-child(odd) {{ background: #f0f; }}
.jp tbody tr:hover {{ background: #ff0; }}
#own td {{ color: #000; }}
.jp h1 {{ font-size: 40px; color: #f0f; }}
.jp img {{ max-width: 100%; }}
</style></head><body{body}><main class="jp">{outputs}
<table id="own"><tbody><tr><td class="number">a table of the notebook</td></tr></tbody></table>
</main></body></html>"""


@cache
def outputs_of(site: Site) -> str:
    study = site.study
    (stack,) = study.manifest.stacks
    views = [study.head(1, 2), study.sentence(0), study.plot(f"sink_share-{stack.name}-layers")]
    return study._repr_html_() + "".join(view._repr_html_() for view in views)


def page_of(folder: Path, outputs: str, html: str = "", body: str = "", *, dark: bool) -> Path:
    paper, ink = ("#111", "#eee") if dark else ("#fff", "#111")
    file = folder / "outputs.html"
    text = JUPYTER.format(html=html, body=body, paper=paper, ink=ink, outputs=outputs)
    file.write_text(text, encoding="utf-8")
    return file


def papers(page: Page) -> set[str]:
    """Colours behind the outputs of a page."""
    code = "(found) => found.map((each) => getComputedStyle(each).backgroundColor)"
    return set(page.locator(".headbook").evaluate_all(code))


def pictures(open_page: Open, folder: Path, outputs: list[str]) -> list[bytes]:
    """Return a screenshot of each output as it is shown below the others.

    Each begins at a whole pixel, so that equal outputs are equal pictures.
    """
    boxes = "".join(f'<div style="min-height: 8000px">{html}</div>' for html in outputs)
    page = open_page(page_of(folder, boxes, dark=False), reduced_motion="reduce")
    found = page.locator(".headbook")
    assert found.count() == len(outputs)
    return [each.screenshot() for each in found.all()]


def assert_same_as_alone(open_page: Open, folder: Path, outputs: list[str]) -> None:
    """Assert that outputs of one notebook look as each does in a notebook of its own."""
    alone = [picture for html in outputs for picture in pictures(open_page, folder, [html])]
    for number, (one, other) in enumerate(
        zip(pictures(open_page, folder, outputs), alone, strict=True)
    ):
        assert pixels(one).shape == pixels(other).shape, number
        # Edges of curves are smoothed anew at each place; the cells of a wrong map differ by more.
        assert (np.abs(pixels(one) - pixels(other)) > SMOOTHED).sum() < FEW_PIXELS, number


def pixels(picture: bytes) -> Any:
    """Return a screenshot as an array."""
    with Image.open(io.BytesIO(picture)) as opened:
        return np.asarray(opened.convert("RGB"), np.int16)


def test_outputs_of_one_notebook_keep_their_pictures(
    encoder_site: Site, decoder_site: Site, open_page: Open, tmp_path: Path
) -> None:
    study, other = encoder_site.study, decoder_site.study
    head, second = (study.head(layer, 1)._repr_html_() for layer in (1, 0))
    one, two = pictures(open_page, tmp_path, [head, second])
    assert one != two  # each card has a map of its own
    whole = study._repr_html_()
    for outputs in ([head, second], [whole, head], [head, whole], [whole, other._repr_html_()]):
        assert_same_as_alone(open_page, tmp_path, outputs)


class Theme(NamedTuple):
    """A notebook's theme: attributes of its elements, and whether the system has a dark one."""

    html: str = ""
    body: str = ""
    dark_system: bool = False


THEMES = {
    "system, light": (Theme(), LIGHT),
    "system, dark": (Theme(dark_system=True), DARK),
    "JupyterLab, dark": (Theme(body=' data-jp-theme-light="false"'), DARK),
    "JupyterLab, light": (Theme(body=' data-jp-theme-light="true"', dark_system=True), LIGHT),
    "VS Code, dark": (Theme(body=' data-vscode-theme-kind="vscode-dark"'), DARK),
    "VS Code, light": (Theme(body=' data-vscode-theme-kind="vscode-light"', dark_system=True),
                       LIGHT),
    "Colab, dark": (Theme(html=' theme="dark"'), DARK),
    "Sphinx, dark": (Theme(html=' data-theme="dark"'), DARK),
}  # fmt: skip


NAMES = ("data-jp-theme-light", "data-vscode-theme-kind", "theme", "data-theme")
DRESS = """([names, html, body, paper, ink]) => {
  for (const [root, text] of [[document.documentElement, html], [document.body, body]]) {
    for (const name of names) root.removeAttribute(name);
    const [name, value] = text.trim().split("=");
    if (name) root.setAttribute(name, JSON.parse(value));
  }
  Object.assign(document.body.style, { background: paper, color: ink });
}"""
COLOURS = """() => [...document.querySelectorAll(".headbook, .headbook *")].map((e) => {
  const { color, backgroundColor, fill, stroke, filter } = getComputedStyle(e);
  return [color, backgroundColor, fill, stroke, filter].join(" ");
})"""
RULES = ("color-contrast", "duplicate-id-aria", "image-alt", "role-img-alt")


def test_outputs_follow_the_theme_of_the_notebook_and_fit_into_any_width(
    encoder_site: Site, open_page: Open, tmp_path: Path
) -> None:
    """Themes of one paper have the same colours of everything, so that axe looks at two."""
    page = open_page(page_of(tmp_path, outputs_of(encoder_site), dark=False))
    assert page.locator(".headbook").count() == 4
    colours: dict[str, list[str]] = {}
    for name, (theme, paper) in THEMES.items():
        page.emulate_media(color_scheme="dark" if theme.dark_system else "light")
        behind = ["#111", "#eee"] if paper == DARK else ["#fff", "#111"]
        page.evaluate(DRESS, [NAMES, theme.html, theme.body, *behind])
        assert papers(page) == {paper}, name
        filters = page.locator(".headbook .ink").evaluate_all(
            "(maps) => maps.map((map) => getComputedStyle(map).filter !== 'none')"
        )
        assert filters
        assert set(filters) == {paper == DARK}, name
        if paper not in colours:
            colours[paper] = page.evaluate(COLOURS)
            assert not violations(page, *RULES), name
        assert page.evaluate(COLOURS) == colours[paper], name
    for width in (390, 800, 1440):
        assert (max(0, sideways(page, width)), cramped(page)) == (0, []), width


def test_outputs_take_nothing_from_notebooks_and_give_nothing(
    encoder_site: Site, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(page_of(tmp_path, outputs_of(encoder_site), dark=False))
    style = "(element, name) => getComputedStyle(element)[name]"
    cell = page.locator("#own td")
    assert cell.evaluate(style, "textAlign") == "right"
    assert cell.evaluate(style, "fontFamily") == "serif"
    assert cell.evaluate(style, "whiteSpace") == "normal"
    row = page.locator(".headbook .wall tbody tr").first
    row.hover()
    assert row.evaluate(style, "backgroundColor") == "rgba(0, 0, 0, 0)"
    assert page.locator(".headbook h1").first.evaluate(style, "color") == "rgb(28, 31, 36)"


def test_exemplars_open_without_scripts(encoder_site: Site) -> None:
    details = parsed(outputs_of(encoder_site)).one(".headbook .exemplar details")
    picture = details.one("img.map")
    assert picture.is_folded
    assert picture.attributes["src"].startswith("data:image/webp;base64,")
    assert not picture.is_hidden
    assert details.one("summary").shows_something


def test_the_notebook_has_twelve_cells_and_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert len(cells) == 12
    assert not [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.soak
def test_the_notebook_runs_and_is_seen_without_a_network(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbclient
    import nbformat

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (tmp_path / "work").mkdir()
    resources = {"metadata": {"path": str(tmp_path / "work")}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    printed = [o.text for each in outputs.values() for o in each if o.output_type == "stream"]
    printed = [text for text in printed if "IProgress" not in text]  # tqdm misses ipywidgets
    assert not [text for text in printed if "Warning" in text or "Error" in text]
    data = {name: each[-1].data for name, each in outputs.items() if each and "data" in each[-1]}
    html = [data[name]["text/html"] for name in ("study", "head", "sentence")]
    assert "6 × 12 heads" in data["study"]["text/plain"]
    assert "Head L2·H8" in data["head"]["text/plain"]
    picture = data["plot"]["image/svg+xml"]
    assert_same_as_alone(open_page, tmp_path, html)
    tables = [data[name]["text/html"] for name in ("table", "ablate")]
    page = open_page(page_of(tmp_path, "".join([*html, *tables, picture]), dark=False))
    assert page.locator(".headbook").count() == 3
    assert page.locator(".headbook .wall td a.map").count() == 72
    claim, tiles = page.locator(".headbook .claim").first, page.locator(".headbook .wall a.map")
    claim.hover()  # it dims the heads that it does not concern
    lit = tiles.evaluate_all(
        "(found) => found.filter((e) => getComputedStyle(e).opacity === '1').length"
    )
    assert 0 < lit < 72
    claim.locator("summary").click()
    assert claim.locator("details p").is_visible()
    assert page.get_by_role("heading", name="Head L2·H8").is_visible()
    assert page.get_by_role("heading", name="Sentence 1", exact=True).is_visible()
    widths = page.locator(".headbook img").evaluate_all(
        "(found) => found.filter((e) => e.checkVisibility()).map((e) => e.naturalWidth)"
    )
    assert min(widths) > 0
    assert page.locator("svg.marks").is_visible()
    assert (tmp_path / "work" / "site" / "index.html").exists()
