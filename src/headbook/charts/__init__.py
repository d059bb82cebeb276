"""Charts of tables, as SVG on pages, as live charts, and as SVG and PDF for papers."""

from headbook.charts.attention import (
    AttentionLine,
    OffsetBar,
    attention_lines,
    attention_map,
    offset_profile,
)
from headbook.charts.axes import without_schema_checks
from headbook.charts.drawing import Drawing
from headbook.charts.figure import Drawable, Figure, without_glyph
from headbook.charts.heads import heat_map
from headbook.charts.language import Arc, arc_diagram
from headbook.charts.layers import layer_curve
from headbook.charts.plots import Plot

__all__ = [
    "Arc",
    "AttentionLine",
    "Drawable",
    "Drawing",
    "Figure",
    "OffsetBar",
    "Plot",
    "arc_diagram",
    "attention_lines",
    "attention_map",
    "heat_map",
    "layer_curve",
    "offset_profile",
    "without_glyph",
    "without_schema_checks",
]
