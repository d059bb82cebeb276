"""Step 18: rename options and columns of tables, without aliases: python columns.py CHECKOUT [--dry].

Runs after the names of steps 15 to 17. Each edit is (folder or file name, regular expression,
replacement, how many places). Files are found by content, wherever they have been moved; an edit that
does not fit as often as said is printed and, if it fits nowhere, left to somebody.
"""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
DRY = "--dry" in sys.argv
SRC, TESTS = "src/headbook", "tests"
N = r'"n_sentences", "n_observations"'
EDITS: list[tuple[str, str, str, int]] = [
    # ---- options; `--max-site-size` goes with its module
    ("*", r"\bneuron_sentences\b", "query_key_sentences", -1),
    ("*", r"--neuron-sentences\b", "--query-key-sentences", -1),
    ("*", r"\baccept_checks\b", "accept_failed_checks", -1),
    ("*", r"--accept-checks\b", "--accept-failed-checks", -1),
    ("*", r"--null\b", "--untrained", -1),
    (SRC, r'keyword\("null", ', 'keyword("untrained", ', 1),
    (SRC, r"\bNull\b(?=[,\s=\[])", "UntrainedStudy", -1),
    (SRC, r"(?m)^    null: Path \| None,$", "    untrained: Path | None,", 1),
    (SRC, r"stored_ones = \(\*studies_of\(given\), rounded, null\)",
     "stored_ones = (*studies_of(given), rounded, untrained)", 1),
    ("docs/film.md", r"--discard\b", "--delete-weights", 2),
    (SRC, r'"--discard"', '"--delete-weights"', 2),
    (TESTS, r'"--discard"', '"--delete-weights"', 1),
    (TESTS, r"--discard: came", "--delete-weights: came", 1),
    (SRC, r'keyword\("discard", Discarding, False\)', 'keyword("delete_weights", DeleteWeights, False)', 1),
    (SRC, r"\bDiscarding\b", "DeleteWeights", -1),
    (SRC, r"\bdiscard: bool\b", "delete_weights: bool", 4),
    (SRC, r"\bdiscard=discard\b", "delete_weights=delete_weights", 3),
    (SRC, r'"--delete-weights": discard\b', '"--delete-weights": delete_weights', 1),
    (SRC, r"\bif discard and\b", "if delete_weights and", 2),
    (SRC, r"        discard: delete from", "        delete_weights: delete from", 1),
    (TESTS, r"\bdiscard=True\b", "delete_weights=True", 3),
    # ---- events and sentences of tables: n_observations and n_sentences
    (SRC, r'NUMBERS = \("value", "low", "high", "sentences", "events"\)',
     f'NUMBERS = ("value", "low", "high", {N})', 1),
    (SRC, r'"metric", "view", "value", "sentences", "rows",', '"metric", "view", "value", "n_sentences", "rows",', 1),
    (SRC, r'"value", "spread", "count", "sentences",', '"value", "std", "count", "n_sentences",', 1),
    (SRC, r'"value", "low", "high", "sentences", "events",\n', f'"value", "low", "high", {N},\n', -1),
    (SRC, r'"value", "low", "high", "sentences", "events", "even"',
     f'"value", "low", "high", {N},\n    "uniform",', 1),
    (SRC, r'"sentences", "events", "kind", "margin"', f'{N}, "method", "margin"', 1),
    (SRC, r'"sentences", "singles", "random_low"', '"n_sentences", "sum_of_single_effects", "random_low"', 1),
    (SRC, r'"count", "sentences", "mean", "low", "high", "chance", "ratio"',
     '"count", "n_sentences", "mean", "low", "high", "uniform", "ratio"', 1),
    (SRC, r'"stack", "layer", "head", "what", "query", "key",', '"stack", "layer", "head", "role", "query", "key",', 1),
    (SRC, r'    frame = frame\.rename\(columns=\{"sentences": "n_sentences", "events": "n_observations"\}\)\n', "", 1),
    (SRC, r'table\[table\["sentences"\] > 0\]\.assign\(column=group\.column, group=group\.value\)',
     'table[table["n_sentences"] > 0].assign(facet=group.column, group=group.value)', 1),
    (SRC, r'pairs=table\["sentences"\]', 'pairs=table["n_sentences"]', 1),
    (SRC, r"view=view, sentences=sums\.sentences\)", "view=view, n_sentences=sums.sentences)", 1),
    (SRC, r"        sentences=ratios\.n_sentences\.ravel\(\),\n        events=ratios\.n_observations\.ravel\(\),",
     "        n_sentences=ratios.n_sentences.ravel(),\n        n_observations=ratios.n_observations.ravel(),", 1),
    (SRC, r'"spread": sums\.spread\.ravel\(\)', '"std": sums.spread.ravel()', 1),
    (SRC, r'columns=\{"ids": "entry", "names": "token"\}', 'columns={"ids": "entry", "names": "token", "sentences": "n_sentences"}', 1),
    (SRC, r'"layer": "Int64", "sentences": "int64"', '"layer": "Int64", "n_sentences": "int64"', 1),
    (SRC, r'"sentences": effects\.sentences\[k\]', '"n_sentences": effects.sentences[k]', 2),
    (SRC, r'"events": effects\.events\[k\]', '"n_observations": effects.events[k]', 1),
    (SRC, r'zip\(\("sentences", "events"\), about', f"zip(({N}), about", 1),
    (SRC, r'"sentences": ratios\.n_sentences\[position, k\]', '"n_sentences": ratios.n_sentences[position, k]', 1),
    (SRC, r'"events": ratios\.n_observations\[position, k\]', '"n_observations": ratios.n_observations[position, k]', 1),
    (SRC, r'"sentences": int\(ratios\.n_sentences\)', '"n_sentences": int(ratios.n_sentences)', 1),
    (SRC, r'"sentences": int\(ratios\.n_sentences\[column\]\)', '"n_sentences": int(ratios.n_sentences[column])', 1),
    (SRC, r'"events": int\(ratios\.n_observations\[column\]\)', '"n_observations": int(ratios.n_observations[column])', 1),
    (SRC, r'row\["sentences"\]', 'row["n_sentences"]', -1),
    (SRC, r'row\["events"\]', 'row["n_observations"]', -1),
    (SRC, r'rows\["sentences"\]\.max', 'rows["n_sentences"].max', 1),
    (SRC, r'"p", "sentences", "floor", "beyond_floor"', '"p", "n_sentences", "floor", "beyond_floor"', 1),
    (SRC, r'"best_layer", "best_head", "margin", "sentences"', '"best_layer", "best_head", "margin", "n_sentences"', 1),
    (SRC, r'"p": found\.p, "sentences": found\.sentences', '"p": found.p, "n_sentences": found.sentences', 1),
    (SRC, r'"margin": matched\.margin\[place\], "sentences": found\.sentences',
     '"margin": matched.margin[place], "n_sentences": found.sentences', 1),
    (SRC, r'"step", "step_low", "step_high", "clusters"', '"step", "step_low", "step_high", "n_clusters"', 1),
    (SRC, r'"clusters": "sentences behind it', '"n_clusters": "sentences behind it', 1),
    # descriptions on the page of files
    (SRC, r'"sentences": "(sentences (that contribute|that were compared|of the sample|with at least one|behind it[^"]*))"',
     r'"n_sentences": "\1"', -1),
    (SRC, r'"events": "', '"n_observations": "', 3),
    # ---- other columns
    (SRC, r'COMPARED = \("control", \*HEADS\)', 'COMPARED = ("baseline", *HEADS)', 1),
    (SRC, r'table\.insert\(0, "control", str\((\w+)\)\)', r'table.insert(0, "baseline", str(\1))', 1),
    (SRC, r'\{"control": "which comparison, and its seed"\}', '{"baseline": "what the model is compared with, and its seed"}', 1),
    (SRC, r'GROUPS = \("column", "group", \*HEADS\)', 'GROUPS = ("facet", "group", *HEADS)', 1),
    (SRC, r'\{"column": "metadata column of the input"', '{"facet": "metadata column of the input"', 1),
    (SRC, r'"token", "query", "key", "neighbour", "column", "group"', '"token", "query", "key", "neighbour", "facet", "group"', 1),
    (SRC, r'\| \{"even": "the same if', '| {"uniform": "the same if', 1),
    (SRC, r'"kind": (EXACT\b(?! *==)|"exact or estimated")', r'"method": \1', -1),
    (SRC, r'\["kind"\] (==|!=) EXACT', r'["method"] \1 EXACT', -1),
    (SRC, r'frame\.loc\[effects\.head, "kind"\] = EXACT', 'frame.loc[effects.head, "method"] = EXACT', 1),
    (SRC, r'"singles": ', '"sum_of_single_effects": ', 3),
    (SRC, r'each\["singles"\]', 'each["sum_of_single_effects"]', 2),
    (SRC, r'table\["what"\], KINDS', 'table["role"], KINDS', 1),
    (SRC, r"head=head, what=what\)", "head=head, role=what)", 1),
    (SRC, r'"what": "query: attention of the token', '"role": "query: attention of the token', 1),
    (SRC, r'"chance": "the same on uniform attention"', '"uniform": "the same on uniform attention"', 1),
    (SRC, r'"ratio": "mean over chance"', '"ratio": "mean over uniform"', 1),
    (SRC, r'"spread": "standard deviation over occurrences', '"std": "standard deviation over occurrences', 1),
]
# The field `chance` of favoured tokens is a column by its name: it becomes `uniform`.
EDITS += [
    (SRC, r"        chance, mean_head: attention under uniform attention", "        uniform, mean_head: attention under uniform attention", 1),
    (SRC, r"(?m)^    chance: Floats\n    mean_head: Floats", "    uniform: Floats\n    mean_head: Floats", 1),
    (SRC, r"divide\(self\.mean, self\.chance\)", "divide(self.mean, self.uniform)", 1),
    (SRC, r"\(self\.low > self\.chance\) & \(self\.low > self\.mean_head\)", "(self.low > self.uniform) & (self.low > self.mean_head)", 1),
    (SRC, r"(?m)^    count: Ints\n    sentences: Ints\n    mean: Floats", "    count: Ints\n    n_sentences: Ints\n    mean: Floats", 1),
    (SRC, r"        count, sentences: occurrences, and sentences with at least one; the same shape\.\n        mean, low", "        count, n_sentences: occurrences, and sentences with at least one; the same shape.\n        mean, low", 1),
    (SRC, r'int\(found\.sentences\[at\]\)', "int(found.n_sentences[at])", 1),
]
# Tests
EDITS += [
    (TESTS, r'"value", "low", "high", "sentences", "events"\]', f'"value", "low", "high", {N}]', 1),
    (TESTS, r'"value", "low", "high", "full", "sentences", "events"', f'"value", "low", "high", "full", {N}', 1),
    (TESTS, r'for n in \("value", "low", "high", "sentences", "events"\)', f'for n in ("value", "low", "high", {N})', 1),
    (TESTS, r'for c in \("value", "low", "high", "events", "sentences"\)', 'for c in ("value", "low", "high", "n_observations", "n_sentences")', 1),
    (TESTS, r'(rows?|own|other|frame|one|part|alone|direct|total|series|study\.heads|study\.importance|both\.heads|fresh\.heads|table|twice\.pairs|one\.importance[^\n"]*"[^\n"]*"\)|both\.importance\[~?top\])\["sentences"\]', r'\1["n_sentences"]', -1),
    (TESTS, r'\["events"\]', '["n_observations"]', -1),
    (TESTS, r'compared\.groupby\("control"\)', 'compared.groupby("baseline")', 1),
    (TESTS, r'rows\["control"\] ==', 'rows["baseline"] ==', 1),
    (TESTS, r'\["kind"\] == "exact"\)', '["method"] == "exact")', 1),
    (TESTS, r'\["singles"\]', '["sum_of_single_effects"]', -1),
    (TESTS, r'"singles": ', '"sum_of_single_effects": ', 2),
    (TESTS, r'"sentences": SENTENCES, "sum_of_single', '"n_sentences": SENTENCES, "sum_of_single', 1),
    (TESTS, r'table\["what"\]', 'table["role"]', 3),
    (TESTS, r'\["layer", "head", "what"\]', '["layer", "head", "role"]', 1),
    (TESTS, r'\["chance"\]', '["uniform"]', 2),
    (TESTS, r'"chance": \("", "", "baseline"\)', '"uniform": ("", "", "baseline")', 1),
    (TESTS, r'    "even": \("", "", "baseline"\), ', "    ", 1),
    (TESTS, r'\["even"\]\.first', '["uniform"].first', 1),
    (TESTS, r'row\["spread"\]', 'row["std"]', 1),
    (TESTS, r'index = \["column", "group",', 'index = ["facet", "group",', 1),
    (TESTS, r'table\["column"\], table\["group"\]', 'table["facet"], table["group"]', 1),
    (TESTS, r'\{\*frame\["column"\]\}', '{*frame["facet"]}', 1),
    (TESTS, r'\((table|importance_table\(some\))\["kind"\]', r'(\1["method"]', 0),
    (TESTS, r'importance_table\(some\)\["kind"\]', 'importance_table(some)["method"]', 1),
    (TESTS, r'\{\*table\["kind"\]\} == \{"exact"', '{*table["method"]} == {"exact"', 1),
    (TESTS, r'\(series\["kind"\], series\["', '(series["method"], series["', 1),
    (TESTS, r'(series|guess)\["kind"\] == "e', r'\1["method"] == "e', 2),
    (TESTS, r'found\["n_sentences"\], found\["sentences"\]', 'found["n_sentences"], found["n_sentences_of_layer"]', 1),
    (TESTS, r'\(\(3, "count"\), \(4, "sentences"\)\)', '((3, "count"), (4, "n_sentences"))', 1),
    (TESTS, r"\(own\.what == what\)", "(own.role == what)", 1),
    (TESTS, r"found = rows\[number\]\.to_numpy\(float\)",
     "counts = {\"sentences\": \"n_sentences\", \"events\": \"n_observations\"}\n"
     "        found = rows[counts.get(number, number)].to_numpy(float)", 1),
    # documents
    ("docs/python.md", r"the number of sentences behind it and of events \(in `tests` and `words`: `n_sentences`,\n`n_observations`\)",
     "the number of sentences behind it (`n_sentences`) and of observations\n(`n_observations`)", 1),
]
EDITS.append((SRC, r"\btwins_of\b", "baseline_runs_of", 2))
# words of documents that the names of steps 15 to 17 retire
EDITS += [
    ("CONTRIBUTING.md", r"in its `TWINS`", "in its `NAIVE`", -1),
    ("CONTRIBUTING.md", r"its twin goes into `SAMPLE_TWINS`", "its naive version goes into `NAIVE_SAMPLED`", -1),
    ("CONTRIBUTING.md", r"\(its twin goes into", "(its naive version goes into", -1),
    ("CONTRIBUTING.md", r"\| an `Estimate` for each label \| a sample", "| a `Jackknife` for each label | a sample", 1),
    ("docs/large-corpora.md", r"Each twin of `--control`", "Each baseline of `--control`", 1),
    ("docs/metrics.md", r"Each twin\b", "Each baseline", 1),
    ("docs/python.md", r"each head of each twin", "each head of each baseline", 1),
]
LOG = """\
- Changed: options `--neuron-sentences`, `--accept-checks`, `--null` of `compare` and `--discard` of `film` are called
  `--query-key-sentences`, `--accept-failed-checks`, `--untrained` and `--delete-weights`. The old names are refused.
- Changed: columns of tables, without aliases: `sentences` and `events` are `n_sentences` and `n_observations`; `control`
  of `compared` is `baseline`, `column` of `groups` is `facet`, `kind` of `importance` is `method`, `singles` of
  `head_groups` is `sum_of_single_effects`, `what` and `chance` of `top_tokens` are `role` and `uniform`, `even` of
  `alignments` is `uniform`, `spread` of `types` is `std`, `clusters` of `half_rise` is `n_clusters`.
"""


def files(place: str):
    if place.endswith(".md"):
        return [root / place]
    if place == "*":
        tops = ["src/headbook", "tests", "docs", "benchmarks", "templates"]
        found = [p for t in tops for p in sorted((root / t).rglob("*")) if p.suffix in {".py", ".md", ".html", ".js", ".toml", ".ts"}]
        return [*found, root / "README.md", root / "CONTRIBUTING.md", root / "Makefile"]
    return sorted((root / place).rglob("*.py"))


texts: dict[Path, str] = {}
bad = 0
for place, old, new, expected in EDITS:
    number = 0
    for path in files(place):
        text = texts.get(path) if path in texts else path.read_text(encoding="utf-8")
        changed, n = re.subn(old, new, text)
        if n:
            texts[path] = changed
            number += n
    if expected not in {-1, number} or (expected == -1 and not number):
        bad += 1
        print(f"{place}: {old}: {number} places, expected {expected}")
log = root / "CHANGELOG.md"
text = log.read_text(encoding="utf-8")
first = re.search(r"(?m)^- ", text)
if "--query-key-sentences`, `--accept-failed" not in text and first:
    texts[log] = text[: first.start()] + LOG + text[first.start() :]
if not DRY:
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
print(f"{len(texts)} files, {bad} edits that did not fit")
