"""A metric of tokens in one stack, for its page: a chart and a table of layers."""

from collections.abc import Iterator

import pandas as pd

from headbook.charts import layer_curve
from headbook.metrics import all_metrics
from headbook.metrics.base import LayerwiseMetric, TokenMetric
from headbook.pages.metric.sections import MetricSection
from headbook.pages.parts.rows import layer_frame, layer_table
from headbook.report.numbers.results import Estimates, StackResults
from headbook.report.wording import SPACES, STACKS, STATES, TOKEN_CLASSES, is_share
from headbook.terms import Space, State

DRAWN_CLASSES = ("all", "content", "function")


def token_section(results: StackResults, metric: LayerwiseMetric) -> MetricSection | None:
    """What a metric of tokens says of one stack; None where it has no numbers there."""
    frames, columns, behind = [], [], 0
    for numbers, title, state, space in _series(results, metric):
        frame = layer_frame(numbers, title)
        frames.append(frame.assign(state=str(state), space=str(space or "")))
        behind = max(behind, int(numbers.sentences.max()))
        about = (part for part in (STATES[state], space and SPACES[space], title) if part)
        columns.append((" · ".join(about), numbers, metric))
    if not frames:
        return None
    rows = pd.concat(frames, ignore_index=True)
    show = {"state": str(rows["state"][0]), "space": str(rows["space"][0])}
    drawn_text = STATES[State(show["state"])]
    if show["space"]:
        drawn_text += f", compared with {SPACES[Space(show['space'])]}"
    unit = metric.averaged.unit or metric.unit
    axis = unit or metric.title.lower()
    share = not unit and is_share(metric)
    caption = (
        f"{metric.title} by layer, {drawn_text}, mean over tokens{results.some(behind, ' of')}"
        + (f" as {unit}" if metric.averaged.unit else "")
        + "; 95 % intervals clustered by sentence."
    )
    name = f"{metric.id}-{results.stack.name}-layers"
    return MetricSection(
        title=STACKS[results.stack.name],
        drawn_text=drawn_text,
        figures=(layer_curve(name, caption, rows, title=axis, show=show, share=share),),
        layers=layer_table(range(len(columns[0][1].value)), columns),
    )


def _series(
    results: StackResults, metric: LayerwiseMetric
) -> Iterator[tuple[Estimates, str, State, Space | None]]:
    """The lines of a token metric: classes of tokens, and what it is set against."""
    beside = metric.beside if isinstance(metric, TokenMetric) else ()
    for state in metric.states:
        for space in metric.spaces or (None,):
            for name in DRAWN_CLASSES:
                numbers = results.tokens(metric.id, state, space, name)
                if numbers is not None:
                    yield numbers, TOKEN_CLASSES[name], state, space
            for other in beside:
                # What does not depend on the space is there in one.
                numbers = results.tokens(other, state, space, "all")
                numbers = numbers or results.tokens(other, state, Space.RAW, "all")
                if numbers is not None and results.tokens(metric.id, state, space, "all"):
                    title = all_metrics()[other].title.lower().removeprefix("neighbours ")
                    yield numbers, title, state, space
