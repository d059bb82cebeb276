"""Tables as charts. `draw` makes them, `render` makes pictures of them."""

from headbook.charts.draw import heat_map, layer_curve, offset_profile, trajectories
from headbook.charts.render import Figure, colours, columnar, files, runtime

__all__ = [
    "Figure",
    "colours",
    "columnar",
    "files",
    "heat_map",
    "layer_curve",
    "offset_profile",
    "runtime",
    "trajectories",
]
