"""Labels of metrics are words, and numbers keep their units beside them."""

import re

import pytest

from headbook.metrics import all_metrics, head_metrics
from headbook.pages import sentence
from headbook.report.wording import label_name, stored_weight, unbroken
from headbook.results.formats import THIN, interval_text, number, percent
from headbook.study.sentence_data import UINT8_STEPS
from html_pages import html_of, text_of
from sites import Site

IDS = re.compile(
    r"_|^(?:uas|f1)$|:to |\b(?:sum|unsplit)\b(?<!unsplit)|^\w+:(?!pass|relcl|prt|poss)"
)


@pytest.mark.parametrize(
    "metric", [m for m in head_metrics(all_metrics().values()) if any(m.labels)]
)
def test_each_label_of_a_metric_has_a_name_of_its_own(metric: object) -> None:
    labels = metric.labels  # type: ignore[attr-defined]
    names = [label_name(label) for label in labels]
    assert len({*names}) == len(labels)
    assert not [name for name in names if IDS.search(name)]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("obj:to_head", "obj (dependent → head)"),
        ("offset:-1", "the previous word"),
        ("next:NOUN_PRON_PROPN", "the next noun or pronoun"),
        ("nearest:X", "the nearest other word (X)"),
        ("acl:relcl:to_dependent", "acl:relcl (head → dependent)"),
        ("alignment:sum", "alignment, subword tokens summed"),
        ("head_found:unsplit", "accuracy, unsplit words"),
        ("windowdiff:attention", "WindowDiff by attention"),
        ("uas", "undirected UAS"),
        ("rest_of_word", "the rest of the same word"),
        ("", ""),
    ],
)
def test_names_of_labels(label: str, name: str) -> None:
    assert label_name(label) == name


def test_what_is_nearly_nothing_keeps_its_sign() -> None:
    near = [number(value) for value in (0.001, -0.001)]
    assert near == [f"<{THIN}0.01", f">{THIN}−0.01"]
    assert percent(-0.0001) == f">{THIN}−0.1{THIN}%"
    assert interval_text(-0.001, 0.2) == f"[>{THIN}−0.01, 0.20]"


def test_a_line_breaks_neither_before_a_unit_nor_anywhere_else_anew() -> None:
    assert unbroken("95 % of 3 words, 2 pp, 4 ppm") == f"95{THIN}% of 3 words, 2{THIN}pp, 4 ppm"
    assert unbroken("a % b") == "a % b"


@pytest.mark.slow
def test_pages_hold_neither_broken_units_nor_ids_of_labels(encoder_site: Site) -> None:
    """In headings, rows and captions; ids stand where a metric's prose explains its labels."""
    for path in ("heads/L00-H01.html", "index.html", "metrics/attention_distance.html"):
        html = html_of(encoder_site.folder / path)
        text = text_of(html)
        assert not re.findall(r"\d %", text), path
        assert not re.search(r"alignment:sum|head found:|\buas\b|:to head", text), path
        assert f"95{THIN}%" in text


def test_a_stored_weight_has_no_more_digits_than_8_bits_hold() -> None:
    """Weights that are stored alike print alike, and two per cent apart differently."""
    texts = [stored_weight(steps) for steps in range(UINT8_STEPS + 1)]
    assert texts[0] == "0\u202f%"
    assert texts[1] == "<\u202f1\u202f%"
    assert texts[-1] == "100\u202f%"
    for steps, text in enumerate(texts[2:], 2):
        assert abs(float(text.removesuffix("\u202f%")) - 100 * steps / UINT8_STEPS) <= 0.5
    for steps in (0, 1, 33, 255):
        assert sentence.weight(steps) == f"{steps / UINT8_STEPS:.2f}"
