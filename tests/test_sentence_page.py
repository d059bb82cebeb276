"""What a page of a sentence has room for."""

import re

import numpy as np
import pandas as pd
import pytest

from headbook.charts import trajectories
from headbook.numbers.results import results
from headbook.views import sentencestack
from headbook.views.sentence import SentencePage, sentence_pages
from headbook.writing.press import figures_of
from sites import Site

AXIS_NAME = re.compile(r'<text transform="translate\(([\d.]+),16\)">(\w+)</text>')


def first_page(site: Site) -> SentencePage:
    return next(iter(sentence_pages(results(site.study))))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "pair"])
@pytest.mark.parametrize("most", [0, 60, 150, 10_000])
def test_pictures_hold_no_more_points_than_there_is_room_for(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    """One more would be too many; other charts are there without a picture, none twice."""
    site: Site = request.getfixturevalue(f"{kind}_site")
    every = [figure.name for figure in figures_of(first_page(site))]
    monkeypatch.setattr(sentencestack, "MOST_POINTS", most)
    stacks = first_page(site).stacks
    charts = [[*stack.figures, *stack.live] for stack in stacks]
    assert [figure.name for figure in figures_of(first_page(site))] == every
    pictures = sum(len(stack.figures) for stack in stacks)
    longest = max(len(stack.queries) for stack in stacks)
    points = longest * (1 + max(stack.n_layers for stack in site.study.manifest.stacks))
    assert pictures * points <= most
    held = min(most // points, sentencestack.MOST_CHARTS, sentencestack.MOST_LINES // longest)
    assert pictures >= min(held, len(charts[0]))


@pytest.mark.slow
def test_every_map_is_a_link_or_the_first_of_each_layer(
    encoder_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stack,) = encoder_site.study.manifest.stacks
    heads = len(stack.attention_layers) * stack.n_heads
    monkeypatch.setattr(sentencestack, "MOST_LINKS", heads)
    (shown,) = first_page(encoder_site).stacks
    assert (len(shown.maps), shown.moving) == (heads, False)
    monkeypatch.setattr(sentencestack, "MOST_LINKS", heads - 1)
    (shown,) = first_page(encoder_site).stacks
    places = [(link.layer, link.head, link.x) for link in shown.maps]
    assert shown.moving
    assert places == [(layer, 0, 0) for layer in stack.attention_layers]


@pytest.mark.parametrize(("layers", "named"), [(6, 1), (12, 1), (24, 2), (32, 2), (48, 3)])
def test_names_of_layers_stand_apart(layers: int, named: int) -> None:
    """All of them, or every second or third."""
    steps = ["input", *map(str, range(layers))]
    values = np.linspace(1, 0, len(steps))
    rows = pd.DataFrame(
        {"position": 0, "token": "0 a", "kind": "other", "step": steps, "value": values}
    ).assign(state="out")
    figure = trajectories(
        f"paths-{layers}", "", rows, title="", steps=steps, show={"state": "out"}, ranks=False
    )
    found = AXIS_NAME.findall(figure.svg)
    assert [name for _, name in found] == steps[::named]
    places = [float(place) for place, _ in found]
    assert min(np.diff(places)) >= 20
