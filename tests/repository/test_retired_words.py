"""Pages and help speak of one thing by one name, that of the literature."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headbook
from headbook.cli.main import app
from headbook.metrics import all_metrics
from headbook.report.wording import SPACES, STATES, VIEWS
from headbook.resources import folder
from headbook.schema import EmbeddingSpace, ResidualPoint, SinkView
from html_pages import html_of
from retired_words import RETIRED, retired_in, visible
from sites import Site

MANY = re.compile(r"(?<=heads/).*|(?<=sentences/)\d.*")  # of each of these kinds one page
COMMANDS = ("", "build", "demo", "collect", "render", "pack", "figures", "metrics")


def found_in(site: Site, page: Path) -> list[str]:
    """Retired words of a page, with what stands around them."""
    return [each for text in visible(html_of(page)) for each in retired_in(text)]


def test_pages_hold_no_retired_word(any_site: Site) -> None:
    """On one page of each kind, and on the pages of all metrics."""
    kinds: dict[str, Path] = {}
    for page in any_site.pages:
        path = page.relative_to(any_site.folder).as_posix()
        kinds.setdefault(MANY.sub("", path), page)
    assert len(kinds) > 16
    assert {"heads/", "sentences/", "sentences/index.html"} <= kinds.keys()
    wrong = {path: found for path, page in kinds.items() if (found := found_in(any_site, page))}
    assert not wrong


@pytest.mark.parametrize("command", COMMANDS)
def test_help_holds_no_retired_word(command: str) -> None:
    option = "--help-all" if command not in {"", "metrics"} else "--help"
    displayed = CliRunner().invoke(app, [*command.split(), option], env={"COLUMNS": "300"})
    assert displayed.exit_code == 0
    assert not [*retired_in(displayed.output)]


@pytest.mark.parametrize("metric", all_metrics().values(), ids=lambda metric: metric.id)
def test_no_title_or_summary_of_a_metric_holds_a_retired_word(metric: object) -> None:
    texts = [getattr(metric, name) for name in ("title", "summary", "unit")]
    assert not [each for text in texts for each in retired_in(text)]


@pytest.mark.parametrize(
    "text",
    [
        "L3·H1 looks at the noun.",
        "Heads park attention on the sink.",
        "Sink share (raw)",
        "in view nosink",
        "the other pieces of its word",
        "84.4 % [72.0, 96.9 %]",
        "2 of 12 relations have a head.",
        "sentence(s)",
    ],
)
def test_what_is_retired_is_found(text: str) -> None:
    assert [*retired_in(text)]


def test_words_of_the_input_and_codes_of_files_are_no_fault() -> None:
    page = (
        '<p>Keys: <code>nosink</code></p><p dir="auto">He looks up.</p>'
        '<pre>headbook --view raw</pre><p class="text">It brings rain.</p>'
    )
    assert visible(page) == ["Keys:"]
    assert visible("<p>It <b>looks</b> up.</p>") == ["It looks up."]


def test_each_pattern_says_what_took_its_place() -> None:
    assert all(retired.instead for retired in RETIRED)


def test_keys_states_and_references_have_one_name_each() -> None:
    """The same in tables, captions and the choices of charts."""
    named: tuple[tuple[str, Mapping[Any, str], Any], ...] = (
        ("view", VIEWS, SinkView),
        ("state", STATES, ResidualPoint),
        ("space", SPACES, EmbeddingSpace),
    )
    for _, names, codes in named:
        assert [*names] == [*codes]
        assert len({*names.values()}) == len(names)


def test_names_of_keys_come_from_one_place() -> None:
    """No other module spells them, and switches of scripts say the same."""
    root = Path(headbook.__file__).parent
    others = [file for file in sorted(root.rglob("*.py")) if file.name != "wording.py"]
    spelled = f'"{VIEWS[SinkView.RENORM]}"'
    assert not [file for file in others if spelled in file.read_text(encoding="utf-8")]
    switches = (folder("templates") / "assets" / "view_switches.js").read_text(encoding="utf-8")
    assert all(f'{view}: "{name}"' in switches for view, name in VIEWS.items())
