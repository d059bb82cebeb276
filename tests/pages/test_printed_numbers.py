"""What a page prints is what the tables of its site hold.

To cover another page, enter it in `PAGES`, and give hints where the numbers of a section are of
something that the section does not name. `python tests/support/site_tables.py SITE PAGE`
lists what is missing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headbook
from headbook.report.relations import TAG_NAMES
from headbook.report.wording import NUMBER_WORDS
from html_pages import html_of
from printed_numbers import (
    Exempt,
    Hint,
    Node,
    Printed,
    Rules,
    printed_numbers,
    titled,
    tree_of,
)
from site_tables import Tables, missing_numbers, rounds_to
from sites import EPOCH, Once, Site

SAMPLE = Path(__file__).parents[2] / "sample_inputs/sentences.conllu"
PAGES = ("index.html", "importance.html")
HEADS = ("L02-H08", "L05-H05", "L00-H02")  # the best of a relation, the most needed, positional

LAYERS = "names of layers and heads"
DATES = "dates, versions, sizes, durations"
SENTENCES = "numbers of sentences and tokens of the corpus"
CONSTANTS = "thresholds and constants of the definitions"
TICKS = "ticks of axes"
MEASURED = "symbols and worked examples under “How it is measured”"
# Beside these only counts of heads, which `test_counts_of_heads_are_those_of_the_tables` recounts.
EXEMPT = (
    Exempt(LAYERS, r"(?<=, )(?:encoder |decoder |cross )?L\d+·H\d+"),
    Exempt(LAYERS, r"^layer \d+$"),
    Exempt(DATES, r"\d{4}-\d\d-\d\d|Headbook \d[\d.]+"),
    Exempt(DATES, r"[\d.,]+ (?:million |billion )?parameters"),
    Exempt(SENTENCES, r"[\d,]+ (?:sentences|observations|rows)\b"),
    Exempt(SENTENCES, r"[\d,]+ of [\d,]+ \([\d.]+ %\)"),  # words of several subword tokens
    Exempt(SENTENCES, r"^[\d.]+ to [\d.]+: \d+$", "title"),  # whose largest weight lies there
    Exempt(CONSTANTS, r"95 % (?:intervals?|confidence)|p [<≤≥] 0\.05|at least (?:40|90) %"),
    Exempt(CONSTANTS, r"\(95 %, all [a-z ]+ together\)"),
    Exempt(CONSTANTS, r"threshold 40 %|± 0\.002|0 to 0\.69 nats|top [15] %|cosine ≥ 0\.9"),
    Exempt(CONSTANTS, r"margin[^:;]*: [\d.]+ (?:thousandths|% of the loss)|equal shares: [\d.]+ %"),
    Exempt(CONSTANTS, r"at least \d+ times|weights under 10%|flows below 2\.5 %"),
    Exempt(CONSTANTS, r"full colour from (?:a weight of )?0\.5|surely at least 0\.3"),
    Exempt(CONSTANTS, r"100 %: all the same"),
    Exempt(TICKS, r"^(?:layer )?[−+]?\d[\d.]* ?%?$", "text"),
)
APART = {
    MEASURED: {"explained", "measure"},
    TICKS: {"scale"},
    "weights of single tokens in the map of one sentence: no estimates": {"links", "t", "say"},
    "texts of the corpus": {"exemplar-text", "roll", "picks"},
    "names of metrics to choose from": {"select"},
    "answers of pages, whose numbers are links to their rows": {"answers"},
}
OTHERS = (
    r"(?:best surface rule \([^»]*\)|uniform attention|random choice|random key|"
    r"offset \([^()]*\)|offset \([−+\d]+): »"
    r"|(?:uniform attention would give|mean over all heads|random weights:) »"
)
EFFECTS = ("importance", "head_groups", "pruning")  # tables of ablation
WITHOUT = {  # exact effects of heads, layers and groups that are replaced by their means
    "table": EFFECTS, "metric": ("ablation_effect", "group_effect"), "replacement": ("mean",),
}  # fmt: skip
HINTS = (
    Hint("", OTHERS, {"role": ("baseline",)}),
    Hint("uniform attention$|uniform$|its accuracy$", "", {"role": ("baseline",)}),
    Hint("", r"\bsink(?: \(|: )»", {"metric": ("sink_share",)}),
    Hint("", r"»[\d.]+ times ", {"metric": ("pos_received_ratio",)}),
    Hint("", r"^L\d+·H\d+: (?:≈ |exact )?»[\d.,]+ thousandths", {"table": ("importance",)}),
    Hint("", r"vector changes by (?:about )?»", {"table": ("importance",)}),
    Hint("", "smallest effect together, .* by »", {"table": ("tests",), "metric": ("pruning",)}),
    Hint("^index.html / The .* heads", r"^»[\d.]+$", WITHOUT),
    Hint("^importance.html / Which heads", r"^»[\d.,]+$", WITHOUT),
    Hint("^importance.html / Look", r"^(?:≈ )?»[\d.,]+$", {"table": EFFECTS}),
    Hint("", "They contribute »", {"metric": ("sink_norm_share",)}),
    Hint("", r"median of heads »", {"claim": ("median of all heads",)}),
    Hint("", "Neighbouring tokens.*»", {"metric": ("attention_to",)}),
    Hint("famil(?:y|ies) / ", r"^L\d+·H\d+, strongest", {"table": ("exemplars",)}),
    Hint(
        "Which head does what",
        r"^attends to .*(?:\[CLS\]|special tokens|first token)",
        {"metric": ("sink_share",)},
    ),
    Hint("", r"from B to A \(score »", {"metric": ("previous_score",), "label": ("",)}),
    Hint("", "copy rate »", {"metric": ("copy_rate",)}),
    Hint("", "mixes shares.*»", {"metric": ("type_shares",)}),
    Hint("Phrase trees", "", {"metric": ("phrase_trees",)}),
    Hint("Dependency trees", "", {"metric": ("dependency_trees",)}),
    Hint("", "^Baselines without attention", {"claim": ("tree without attention",)}),
    Hint("subword tokens /", "", {"metric": ("attention_to",), "label": ("rest_of_word",)}),
    Hint("[Bb]y offset", "", {"metric": ("offset_profile",)}),
    Hint("From → to", "", {"table": ("class_flows", "top_tokens"), "metric": ("",)}),
    Hint("From → to classes", r"^»[\d.]+×$", {"table": ("class_flows",), "part": ("value",)}),
    Hint("", r"(?:[Mm]ean of all heads:? \(?|reaches )»", {"role": ("baseline",)}),
    Hint("", r"the mean of all heads »", {"role": ("baseline",)}),
    Hint("What the model loses", "^[≈ ]*»", {"table": ("importance",)}),
    Hint("xemplars", "", {"table": ("exemplars",)}),
    # Those of head outputs are chosen on the sample.
    Hint("What it writes / .*xemplars", "", {"table": ("exemplar_tokens",)}),
    Hint(
        "xemplars",
        "^(?:strongest|top tenth|top quarter|median)",
        {"table": ("tests",), "metric": ("exemplars",)},
    ),
    Hint("Similar heads", "", {"table": ("pairs",)}),
    Hint("Tokens that change most", "", {"table": ("effect_tokens",)}),
    Hint("Top tokens", "", {"table": ("top_tokens",)}),
    Hint("Top tokens.*ratio to uniform$", "", {"part": ("ratio",), "role": ("value",)}),
    Hint("Top tokens.*to the mean head$", "", {"part": ("mean_head_ratio",)}),
    Hint("Top tokens.*mean attention$", "", {"part": ("mean",)}),
    Hint("part of speech.*ratio$", "", {"metric": ("pos_received_ratio",)}),
    Hint("part of speech.*(share|attention)$", "", {"metric": ("pos_received",)}),
    Hint("Syntactic relations", "", {"metric": ("relation_accuracy",)}),
)
FLOWS = tuple(  # the cells of a table from classes to classes name their row in their title
    hint
    for tag, words in TAG_NAMES.items()
    for hint in (
        Hint("From → to", f"^{words} → .*»", {"query_class": (tag,), "table": ("class_flows",)}),
        Hint("From → to", f"→ {words}: .*»", {"key_class": (tag,), "table": ("class_flows",)}),
    )
)
RULES = Rules(EXEMPT, (*HINTS, *FLOWS), frozenset({"script", "style"}.union(*APART.values())))


@pytest.fixture(scope="module")
def demo_site(once: Once) -> Path:
    """Build the site of the demo model on the sample sentences."""

    def fill(draft: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
            study = headbook.collect([SAMPLE], model="demo")
        headbook.render(study, draft / "site")

    return once("demo-site", fill) / "site"


def looked_at(site: Path, heads: tuple[str, ...]) -> list[str]:
    return [page for page in (*PAGES, *(f"heads/{head}.html" for head in heads))
            if (site / page).exists()]  # fmt: skip


def numbers_of(site: Path, page: str) -> list[Printed]:
    return printed_numbers(page, html_of(site / page), RULES)


@cache
def tables_of(site: Path) -> Tables:
    return Tables(site / "data")


@pytest.mark.soak
@pytest.mark.slow
def test_every_number_of_the_demo_site_is_in_a_table(demo_site: Path) -> None:
    pages = looked_at(demo_site, HEADS)
    numbers = [number for page in pages for number in numbers_of(demo_site, page)]
    assert len(pages) == len(PAGES) + len(HEADS)
    assert len(numbers) > 2000
    missing = missing_numbers(numbers, tables_of(demo_site))
    assert not missing, f"{len(missing)} of {len(numbers)} in no table:\n" + "\n".join(missing)


def test_every_number_of_a_small_site_is_in_a_table(any_site: Site) -> None:
    heads = [file.stem for file in sorted((any_site.folder / "heads").glob("*.html"))]
    numbers = [n for page in looked_at(any_site.folder, tuple(heads[:3]))
               for n in numbers_of(any_site.folder, page)]  # fmt: skip
    assert len(numbers) > 100
    missing = missing_numbers(numbers, tables_of(any_site.folder))
    assert not missing, f"{len(missing)} of {len(numbers)} in no table:\n" + "\n".join(missing)


def test_every_number_of_a_site_with_circuits_is_in_a_table(circuit_site: Site) -> None:
    pages = ("circuits.html", "heads/L01-H01.html", "heads/L00-H00.html")
    numbers = [n for page in pages for n in numbers_of(circuit_site.folder, page)]
    assert len(numbers) > 100
    missing = missing_numbers(numbers, tables_of(circuit_site.folder))
    assert not missing, f"{len(missing)} of {len(numbers)} in no table:\n" + "\n".join(missing)


def altered(text: str) -> str:
    """Return a number with another last digit."""
    place = max(n for n, letter in enumerate(text) if letter.isdigit())
    return f"{text[:place]}{(int(text[place]) + 3) % 10}{text[place + 1 :]}"


@pytest.mark.soak
@pytest.mark.slow
def test_nine_of_ten_altered_numbers_are_missed(demo_site: Path) -> None:
    """Bound what is found by chance: a number of the same head, metric and label."""
    numbers = [
        number
        for page in looked_at(demo_site, HEADS)
        for number in numbers_of(demo_site, page)
        if number.value[0] not in "<>"
    ]
    wrong = [replace(number, value=altered(number.value)) for number in numbers]
    missed = len(missing_numbers(wrong, tables_of(demo_site)))
    assert missed >= 0.9 * len(wrong)
    with_ends = [
        replace(number, ends=(altered(number.ends[0]), number.ends[1]))
        for number in numbers
        if number.ends is not None and number.ends[0][0] not in "<>"
    ]
    assert len(with_ends) > 500
    assert len(missing_numbers(with_ends, tables_of(demo_site))) >= 0.98 * len(with_ends)


def test_a_number_altered_on_a_page_is_missed(encoder_site: Site) -> None:
    """Alter the HTML: values, ends of intervals, or p values of a page; titles and labels, too."""
    tables, missed = tables_of(encoder_site.folder), list[bool]()
    thin = "\u202f"
    kinds = (r"(?<=\[)\d+\.\d+(?=, \d)", rf"\d\d\.\d(?={thin}%)", r"(?<=p = )0\.\d\d\d")
    for page in looked_at(encoder_site.folder, ("L00-H01",)):
        html, right = html_of(encoder_site.folder / page), numbers_of(encoder_site.folder, page)
        for kind in kinds:
            wrong = re.sub(kind, lambda match: altered(match[0]), html)
            numbers = printed_numbers(page, wrong, RULES)
            changed = [new for new, old in zip(numbers, right, strict=True) if new != old]
            missed += [bool(missing_numbers([number], tables)) for number in changed]
    assert len(missed) > 50
    assert np.mean(missed) >= 0.9


# Counts of heads: what is counted, as printed, and as counted.

Count = tuple[str, object, object]
VERDICTS = {
    "harmful": "harmful", "undecided": "undecided", "changes the output": "changes",
    "change the output": "changes", "can go alone": "no_change",
}  # fmt: skip


def spelt(words: str) -> int:
    return NUMBER_WORDS.index(words) if words in NUMBER_WORDS else int(words.replace(",", ""))


def claimed(tests: pd.DataFrame, relations: pd.DataFrame) -> pd.DataFrame:
    """Return the relations above the best rule whose head does more than prefer a class."""
    above = relations[(relations["p"] < 0.05) & (relations["difference_low"] > 0)]
    preferring = tests[(tests["claim"] == "class_preference") & (tests["difference_low"] > 0)]
    return above[above["label"].isin(preferring["label"])]


def overview_counts(main: Node, data: dict[str, pd.DataFrame]) -> Iterator[Count]:
    """Yield the counts of the overview."""
    text = main.text()
    sections = {
        node.attributes["id"].removeprefix("family-"): next(node.every("h3")).text()
        for node in main.every("section")
        if node.attributes.get("id", "").startswith("family-")
    }
    printed = {name: int(title.split()[-1].replace(",", "")) for name, title in sections.items()}
    if "functions" in data:
        families = data["functions"]["family"]
        yield "families", printed, dict(Counter(families[families != ""]))
    if match := re.search(r"\b(?!most\b)(\S+) heads attend to nearby words", text):
        yield "nearby words", spelt(match[1]), printed["nearby"]
    for claim in (node for node in main.every("li") if "claim" in node.attributes.get("class", "")):
        number = claim.attributes["id"].removeprefix("c")
        lit = [a for a in main.every("a") if f"k{number}" in a.attributes.get("class", "").split()]
        lights = re.search(r"([\d,]+) heads? · evidence", claim.text())
        assert lights
        yield f"claim {number}", spelt(lights[1]), len(lit)


def importance_counts(main: Node, data: dict[str, pd.DataFrame]) -> Iterator[Count]:
    """Yield how many heads have which verdict, by the key of the rings and by the answer."""
    table, text = data["importance"], main.text()
    effects = table[(table["metric"] == "ablation_effect") & (table["replacement"] == "mean")]
    ranked = "kl" if "kl" in {*effects["target"]} else effects["target"].min()  # or embedding
    exact = effects[(effects["target"] == ranked) & (effects["verdict"] != "")]
    counts = {name: int(n) for name, n in re.findall(rf"({'|'.join(VERDICTS)}): (\d+)", text)}
    expected = {name: n for name, n in Counter(exact["verdict"]).items() if n}
    yield "verdicts", {VERDICTS[name]: n for name, n in counts.items()}, expected
    if match := re.search(r"(\d+) of (\d+) heads? changes? the output", text):
        changed = int(exact["verdict"].isin(["changes", "harmful"]).sum())
        yield "changed", (int(match[1]), int(match[2])), (changed, len(exact))
    audit = data["tests"].query("metric.str.startswith('audit')").set_index("metric")
    if match := re.search(r"On (\d+) heads picked at random", text):
        yield "audited", int(match[1]), round(audit["n_observations"].max())


def ranks(main: Node, data: dict[str, pd.DataFrame]) -> Iterator[Count]:
    """Yield whether the rank of a head among all heads is within the range that is printed."""
    heads = data["heads"]
    layer, head = map(int, re.findall(r"\d+", next(main.every("h1")).text()))
    lists = (ul for ul in main.every("ul") if ul.attributes.get("class") == "strips")
    for strip in (li for ul in lists for li in ul.every("li")):
        place = re.search(
            r"(among the |\d+)?(?:\w\w to )?(\d+)?(?:\w\w)? ?(highest|lowest) of ([\d,]+)"
            r"(?: \(not tested\))?(.*?)(?: \[| ·)",
            strip.text(),
        )
        metric = next(a.attributes["href"] for a in strip.every("a")).split("/")[-1].split(".")[0]
        assert place
        start, last, end, of, printed = place.groups()
        first = int(start) if start and start.isdigit() else 1
        printed_ranks = {*range(first, int(last or first) + 1)}
        known = False
        for _, rows in heads[heads["metric"] == metric].groupby(["view", "label"]):
            values = rows.set_index(["layer", "head"])["value"].dropna()
            own = values.get((layer, head), float("nan"))
            digits, scale = printed.strip(" %"), 0.01 if "%" in printed else 1.0
            if rounds_to(np.array([own]), digits, scale).all():
                beyond = values > own if end == "highest" else values < own
                rank = int(beyond.sum()) + 1
                known |= rank in printed_ranks and len(values) == spelt(of)
        yield strip.text(), known, True


def percentiles(main: Node, data: dict[str, pd.DataFrame]) -> Iterator[Count]:
    """Yield the percentiles of a head in the tables of all its numbers."""
    layer, head = map(int, re.findall(r"\d+", next(main.every("h1")).text()))
    for row in (tr for table in main.every("table") for tr in table.every("tr")):
        cells = [cell.text() for cell in row.elements]
        known = next(titled(cells[0]), None)
        if known is None or not cells[-1].isdigit():
            continue
        of = data["heads"][(data["heads"]["metric"] == known[0])]
        labels = [*of["label"].unique()]
        of = of[of["label"] == (known[1] if known[1] in labels else labels[0])]
        views = {
            str(view): frame for view, frame in of.groupby("view") if frame["value"].notna().any()
        }
        measured = next(views[view] for view in ("raw", "nosink", "renorm") if view in views)
        values = measured.set_index(["layer", "head"])["value"].dropna()
        own = values[layer, head]
        below = (values < own).sum() + ((values == own).sum() - 1) / 2
        yield cells[0], int(cells[-1]), round(100 * float(below) / (len(values) - 1))


COUNTS: dict[str, tuple[Callable[..., Iterator[Count]], ...]] = {
    "index.html": (overview_counts,),
    "importance.html": (importance_counts,),
}


def counts_of(site: Path, heads: tuple[str, ...]) -> list[Count]:
    names = ("heads", "importance", "tests", "functions")
    files = {name: site / f"data/{name}.parquet" for name in names}
    data = {name: pd.read_parquet(file) for name, file in files.items() if file.exists()}
    found = []
    for page in looked_at(site, heads):
        main = next(tree_of(html_of(site / page)).every("main"))
        for count in COUNTS.get(page, (ranks, percentiles)):
            found += [(f"{page}, {what}", one, other) for what, one, other in count(main, data)]
    return found


@pytest.mark.soak
@pytest.mark.slow
def test_counts_of_heads_are_those_of_the_tables(demo_site: Path) -> None:
    counts = counts_of(demo_site, HEADS)
    asked = {what.partition(", ")[2] for what, *_ in counts}
    assert {"families", "nearby words", "claim 1", "verdicts"} <= asked
    assert len(counts) > 6 * len(HEADS)
    assert [count for count in counts if count[1] != count[2]] == []


def test_counts_of_heads_of_a_small_site(encoder_site: Site) -> None:
    counts = counts_of(encoder_site.folder, ("L00-H01",))
    assert counts
    assert [count for count in counts if count[1] != count[2]] == []
