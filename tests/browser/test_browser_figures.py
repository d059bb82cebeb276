"""Figures as files in a browser: where their letters stand."""

import pytest

from browser import Open
from sites import Site

pytest_plugins = ["browser_windows"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Names stand on the points of these, as many as there are heads.
NAMES_ON_POINTS = "similar-"
# Texts with a corner outside the picture, and pairs of one axis, legend or layer that overlap.
PLACES = """() => {
  const whole = document.documentElement.getBoundingClientRect();
  const corners = (text) => {
    const { x, y, width, height } = text.getBBox(), m = text.getScreenCTM();
    const cut = height * 0.15;  // letters do not fill their line
    const right = x + width, top = y + cut, bottom = y + height - cut;
    return [[x, top], [right, top], [right, bottom], [x, bottom]]
      .map(([a, b]) => [m.a * a + m.c * b + m.e, m.b * a + m.d * b + m.f]);
  };
  const apart = (one, other) => [one, other].some((box) => [0, 1].some((side) => {
    const axis = [box[side + 1][0] - box[side][0], box[side + 1][1] - box[side][1]];
    const [a, b] = [one, other].map((each) => each.map(([x, y]) => x * axis[0] + y * axis[1]));
    return Math.max(...a) <= Math.min(...b) || Math.max(...b) <= Math.min(...a);
  }));
  const shown = (text) => text.textContent.trim() && text.getAttribute("opacity") !== "0";
  const texts = [...document.querySelectorAll("text")].filter(shown);
  const beyond = ([x, y]) => x < whole.left - 1 || x > whole.right + 1
    || y < whole.top - 1 || y > whole.bottom + 1;
  const outside = texts.filter((text) => corners(text).some(beyond));
  const lines = (text) => {
    const own = [...text.querySelectorAll("tspan")];
    return own.length ? own : [text];
  };
  const overlapping = [...new Set(texts.map((text) => text.parentElement))].flatMap((group) => {
    const labels = [...group.children].filter((each) => texts.includes(each)).flatMap(lines);
    const boxes = labels.map(corners);
    const met = (i) => labels.slice(0, i).filter((_, k) => !apart(boxes[i], boxes[k]));
    return labels.flatMap((one, i) => met(i)
      .map((other) => `${other.textContent} | ${one.textContent}`));
  });
  return [texts.length, outside.map((text) => text.textContent), overlapping];
}"""


def test_no_label_lies_outside_its_figure_or_on_its_neighbour(
    any_site: Site, open_page: Open
) -> None:
    """At the width of a page and of a column."""
    page, wrong, seen = open_page(any_site.folder / "404.html"), {}, 0
    for file in sorted((any_site.folder / "figures").glob("*.svg")):
        page.goto(file.as_uri())
        count, outside, overlapping = page.evaluate(PLACES)
        assert count, file
        seen += 1
        if file.name.startswith(NAMES_ON_POINTS):
            overlapping = []
        if outside or overlapping:
            wrong[file.name] = outside, overlapping
    assert not wrong
    assert seen > 10


def test_what_is_outside_or_overlaps_is_found(open_page: Open, encoder_site: Site) -> None:
    page = open_page(encoder_site.folder / "404.html")
    page.goto((encoder_site.folder / "figures" / "attention_distance-self.svg").as_uri())
    assert page.evaluate(PLACES)[1:] == [[], []]
    page.evaluate(
        """() => {
          const axis = [...document.querySelectorAll("g")]
            .find((g) => [...g.children].filter((each) => each.matches("text")).length > 1);
          const label = axis.querySelector("text"), other = label.cloneNode(true);
          label.textContent = "twice";
          other.textContent = "two";
          axis.append(other);
          document.documentElement.append(axis.cloneNode(true));
          document.documentElement.lastChild.setAttribute("transform", "translate(-5000,0)");
        }"""
    )
    _, outside, overlapping = page.evaluate(PLACES)
    assert "twice" in outside
    assert "twice | two" in overlapping
