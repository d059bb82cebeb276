"""Pictures of one head: heights of flows are shares, and effects stand where their axis says."""

import re

import numpy as np
import pytest

from headbook.charts.one_head import (
    BASE,
    GAP,
    HEIGHT,
    MIN_GROUND_SHARE,
    MIN_NUMBER_DISTANCE,
    EffectScale,
    FlowNode,
    FlowRibbon,
    effect_dots,
    effect_picture,
    flow_picture,
)

SHARES = {("a", "x"): 0.5, ("a", "y"): 0.1, ("b", "x"): 0.1, ("b", "y"): 0.3}


def node(name: str, share: float, *, out: bool = False, note: str = "") -> FlowNode:
    return FlowNode(name, share, f"{name} <1>", note, f"{name}: {share}", out)


def drawn(note: str = "") -> str:
    queries = node("a", 0.6, out=True, note=note), node("b", 0.4)
    keys = node("x", 0.6), node("y", 0.4)
    ribbons = [
        FlowRibbon(*ends, share, "2.0×", f"{ends}", ends == ("a", "x"))
        for ends, share in SHARES.items()
    ]
    return flow_picture("flow", "A <caption>", queries, keys, ribbons).svg


def test_heights_are_shares() -> None:
    svg = drawn()
    scale = HEIGHT - GAP
    heights = [float(h) for h in re.findall(r'<rect[^>]*height="([\d.]+)"', svg)]
    assert heights == pytest.approx([0.6 * scale, 0.4 * scale] * 2, abs=0.06)
    thick = {
        match[1]: float(match[0])
        for match in re.findall(r"<path[^>]*v([\d.]+)C[^>]*><title>([^<]*)</title>", svg)
    }
    assert len(thick) == 4
    for ends, share in SHARES.items():
        assert thick[str(ends).replace("'", "&#x27;")] == pytest.approx(share * scale, abs=0.06)


def test_what_stands_out_is_drawn_last_and_bears_its_ratio() -> None:
    svg = drawn()
    paths = re.findall(r'<path class="([^"]*)"', svg)
    assert paths == ["flow", "flow", "flow", "flow hi"]
    assert svg.count("2.0×") == 1
    assert svg.count('class="node hi"') == 1
    assert "a &lt;1&gt;" in svg
    assert "<caption>" not in svg


def test_small_flows_are_drawn_only_if_they_stand_out_and_ratios_do_not_touch() -> None:
    small = MIN_GROUND_SHARE / 2
    queries = node("a", 0.5), node("b", 0.5)
    keys = node("x", 1 - 2 * small), node("y", 2 * small)
    ribbons = [
        FlowRibbon("a", "x", 0.5 - small, "2.0×", "", True),
        FlowRibbon("b", "x", 0.5 - small, "3.0×", "", True),
        FlowRibbon("a", "y", small, "", "", False),
        FlowRibbon("b", "y", small, "9.0×", "", True),
    ]
    svg = flow_picture("flow", "caption", queries, keys, ribbons).svg
    assert re.findall(r'<path class="([^"]*)"', svg) == ["flow hi"] * 3
    places = [float(y) for y in re.findall(r'class="x" x="[^"]*" y="([^"]*)"', svg)]
    assert len(places) == 2  # the third flow is too thin to bear its ratio
    assert abs(places[0] - places[1]) >= MIN_NUMBER_DISTANCE


def test_tokens_stand_below_a_class_where_there_is_room() -> None:
    assert "the 4" in drawn("the 4")
    thin = flow_picture(
        "flow",
        "caption",
        [node("a", 0.95), node("b", 0.05, note="the 4")],
        [node("x", 1.0)],
        [FlowRibbon("a", "x", 0.95, "", "", False), FlowRibbon("b", "x", 0.05, "", "", False)],
    )
    assert "the 4" not in thin.svg


def test_effects_stand_on_a_logarithmic_axis() -> None:
    scale = EffectScale.of(np.array([0.5, 1.0, 50.0, np.nan, -1.0]))
    assert scale is not None
    steps = [scale(value) for value in (0.5, 1.0, 50.0)]
    assert (steps[2] - steps[1]) / (steps[1] - steps[0]) == pytest.approx(np.log(50) / np.log(2))
    assert scale(-1.0) == scale(scale.low) < scale(0.5)
    assert scale.cut([-1.0])
    assert not scale.cut([0.5])
    assert scale.ticks == [0.5, 1, 2, 5, 10, 20, 50]


def test_the_axis_needs_two_effects_and_spans_a_factor_of_a_thousand() -> None:
    assert EffectScale.of(np.array([1.0, np.nan])) is None
    assert EffectScale.of(np.array([-1.0, 0.0])) is None
    scale = EffectScale.of(np.array([1e-9, 2.0]))
    assert scale is not None
    assert scale.low == pytest.approx(2e-3 / 1.15)
    assert scale.ticks == [0.01, 0.1, 1]


def test_every_head_is_a_dot_and_one_is_large() -> None:
    values = np.array([0.5, 1.0, np.nan, 4.0])
    scale = EffectScale.of(values)
    assert scale is not None
    dots = effect_dots(scale, values, np.array([True, False, True, True]))
    exact, estimated = (
        re.findall(rf'<path class="{kind}" d="([^"]*)"', dots)[0] for kind in ("exact", "est")
    )
    assert exact.count("M") == 2
    assert estimated.count("M") == 1
    known = effect_picture("e", "c", scale, dots, label="L0·H3", value=4.0, ends=(3.0, 5.0)).svg
    [x] = re.findall(rf'<circle class="mk" cx="([\d.]+)%" cy="{BASE:.0f}"', known)
    assert float(x) == pytest.approx(scale(4.0), abs=0.01)
    assert 'class="own"' in known
    assert 'class="lim"' not in known
    for margin, lines, names in ((1.0, 1, 1), (3.9, 1, 0), (9.0, 0, 0)):
        drawn = effect_picture(
            "e", "c", scale, dots, label="L0·H3", value=4.0, ends=(3.0, 5.0), margin=margin
        ).svg
        assert drawn.count('class="lim"') == lines
        assert drawn.count(">margin<") == names
    guess = effect_picture("e", "c", scale, dots, label="L0·H1", value=1.0, ends=(np.nan, np.nan))
    assert 'class="mk o"' in guess.svg
    assert 'class="own"' not in guess.svg
