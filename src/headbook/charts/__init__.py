"""Tables as charts. `draw` makes them, `render` makes pictures of them."""

from headbook.charts.attention import Link, attention_lines, attention_map
from headbook.charts.draw import heat_map, layer_curve
from headbook.charts.drawing import Drawing
from headbook.charts.geometry import state_curves, state_matrix
from headbook.charts.occurrences import occurrence_paths
from headbook.charts.paper import files
from headbook.charts.patterns import mixture_bars
from headbook.charts.profile import Bar, offset_profile
from headbook.charts.relations import relation_layers
from headbook.charts.render import Figure, Picture, columnar, runtime
from headbook.charts.similar import head_points
from headbook.charts.tags import tag_heads, tag_layers
from headbook.charts.trajectories import BASELINE, trajectories
from headbook.charts.trees import Arc, arc_diagram, bracket_diagram
from headbook.charts.unchecked import unchecked

__all__ = [
    "BASELINE",
    "Arc",
    "Bar",
    "Drawing",
    "Figure",
    "Link",
    "Picture",
    "arc_diagram",
    "attention_lines",
    "attention_map",
    "bracket_diagram",
    "columnar",
    "files",
    "head_points",
    "heat_map",
    "layer_curve",
    "mixture_bars",
    "occurrence_paths",
    "offset_profile",
    "relation_layers",
    "runtime",
    "state_curves",
    "state_matrix",
    "tag_heads",
    "tag_layers",
    "trajectories",
    "unchecked",
]
