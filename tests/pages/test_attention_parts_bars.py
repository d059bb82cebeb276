"""Bars of the parts of attention: as wide as their numbers, the same in list, script and page."""

import pytest

from chosen_results import Fake, fake_results
from headbook.charts.patterns import PARTS, part_key, parts_of, widths
from headbook.pages.heads import heads_page
from headbook.pages.parts.head_list import list_data
from headbook.pages.patterns import _parts_table
from headbook.results.number import Number
from sites import Site


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ((0.2, 0.5, 0.3), (20, 50)),
        ((0.2, -0.1, 0.9), (20, 0)),
        ((-0.01, 0.4, 0.61), (0, 40)),
        ((0.7, 0.5, -0.2), (70, 30)),
    ],
)
def test_a_bar_draws_nothing_below_zero_and_ends_at_its_width(
    parts: tuple[float, float, float], wanted: tuple[float, float]
) -> None:
    numbers = {part_key(part): Fake([[value]]) for part, value in zip(PARTS, parts, strict=True)}
    found = parts_of(fake_results(numbers), 0, 0)
    assert widths(found) == pytest.approx(wanted)
    assert [number.value for number in found.values()] == pytest.approx(parts)


def test_without_offsets_the_key_begins_the_bar() -> None:
    numbers = {part_key("key"): Fake([[0.3]]), part_key("pair"): Fake([[0.7]])}
    assert widths(parts_of(fake_results(numbers), 0, 0)) == pytest.approx((0, 30))


@pytest.mark.slow
def test_list_script_and_layers_have_the_numbers_of_the_table(encoder_site: Site) -> None:
    """Parts of a head and of a layer sum to 1."""
    table = encoder_site.study.heads
    rows = table[(table["metric"] == "attention_parts") & (table["view"] == "renorm")]
    by_key = rows[(rows["label"] == "key") & rows["value"].notna()]
    listed = list_data(encoder_site.results)["heads"]
    assert heads_page(encoder_site.results).has_parts
    for numbers_of_head in by_key.to_dict("records"):
        stack, layer, head = (numbers_of_head[name] for name in ("stack", "layer", "head"))
        parts = parts_of(encoder_site.results[stack], layer, head)
        assert parts["key"].value == pytest.approx(numbers_of_head["value"])
        assert sum(number.value for number in parts.values()) == pytest.approx(1)
        page = parts["key"].row
        (line,) = [row for row in listed if row[2] == stack and _place(row) == (layer, head)]
        assert line[-1] == pytest.approx(widths(parts)[1], abs=0.05)
        assert dict(page.key)["head"] == head
    for results in encoder_site.results.values():
        for _, bar, *numbers in _parts_table(results).rows:
            values = [number.value for number in numbers if isinstance(number, Number)]
            assert sum(values) == pytest.approx(1)
            assert bar is not None


def _place(row: list[object]) -> tuple[int, int]:
    """Return layer and head of a row of the script, from the address of its page."""
    layer, head = str(row[1]).removesuffix(".html").split("-")[-2:]
    return int(layer[-2:]), int(head[1:])
