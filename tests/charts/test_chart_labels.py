"""Labels of charts: short ones are drawn without asking Vega how wide they are, long ones cut."""

from xml.etree import ElementTree as ET

import altair as alt
import pandas as pd
import pytest
import vl_convert

from headbook.charts import axes, figure


def chart(*names: str) -> dict[str, object]:
    rows = pd.DataFrame({"name": names, "value": range(len(names))})
    drawn = alt.Chart(rows).mark_bar().encode(y="name", x="value", color="name")
    return axes.styled_spec(drawn)


def texts(root: ET.Element) -> list[str | None]:
    return [element.text for element in root.iter(figure.TEXT)]


@pytest.mark.parametrize("name", ["PRON", "the lines of a table", "W" * 40, "\u4e2d" * 40])
def test_labels_are_those_that_vega_draws(name: str) -> None:
    spec = chart("a", name)
    svg = vl_convert.vegalite_to_svg(spec)
    assert texts(figure._drawn(spec)) == texts(ET.fromstring(svg))  # noqa: S314
    assert ("\u2026" in svg) == (len(name) == 40)


def test_a_chart_with_short_labels_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    draw = vl_convert.vegalite_to_svg

    def counted(spec: dict[str, object]) -> str:
        asked.append(spec)
        return draw(spec)

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", counted)
    figure._drawn(chart("NOUN", "PRON"))
    assert len(asked) == 1
