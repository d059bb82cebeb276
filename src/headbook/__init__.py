"""Headbook: a static site about a transformer's attention heads and its tokens' paths.

```python
import headbook

model, tokenizer = headbook.demo_model()
study = headbook.collect(["The cat sees a small bird."], model, tokenizer)
study.heads                          # a pandas frame: one row per head, metric, view and label
headbook.render(study, "site")       # pages that open with a double click
```
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Checkpoints", "Comparison", "Config", "HeadbookError", "HeadbookWarning", "Progress", "Site",
    "Study", "__version__", "ablate", "build", "checkpoints", "collect", "compare", "demo_model",
    "figures", "list_metrics", "merge", "pack", "render",
]  # fmt: skip

if TYPE_CHECKING:
    from headbook.comparison.checkpoints import Checkpoints
    from headbook.comparison.comparison import Comparison
    from headbook.config import Config
    from headbook.errors import HeadbookError, HeadbookWarning
    from headbook.metrics import list_metrics
    from headbook.progress import Progress
    from headbook.run.ablate import ablate
    from headbook.run.collect import collect
    from headbook.run.objects import demo_model
    from headbook.site.archive import pack
    from headbook.site.builds import build, checkpoints, compare
    from headbook.site.figures import figures
    from headbook.site.sites import render
    from headbook.study.study import Study, merge
    from headbook.written_site import Site


def __getattr__(name: str) -> object:
    """Import a public name at its first use: rendering never loads torch, transformers or spaCy."""
    import warnings  # noqa: PLC0415
    from importlib import import_module  # noqa: PLC0415

    homes = {
        "Checkpoints": "headbook.comparison.checkpoints",
        "Comparison": "headbook.comparison.comparison",
        "Config": "headbook.config",
        "HeadbookError": "headbook.errors",
        "HeadbookWarning": "headbook.errors",
        "Progress": "headbook.progress",
        "Site": "headbook.written_site",
        "Study": "headbook.report.tables",  # with the tables that `Study.tests` needs
        "ablate": "headbook.run.ablate",
        "build": "headbook.site.builds",
        "checkpoints": "headbook.site.builds",
        "collect": "headbook.run.collect",
        "compare": "headbook.site.builds",
        "demo_model": "headbook.run.objects",
        "figures": "headbook.site.figures",
        "list_metrics": "headbook.metrics",
        "merge": "headbook.report.tables",
        "pack": "headbook.site.archive",
        "render": "headbook.site.sites",
    }
    if name not in homes:
        raise AttributeError(f"module 'headbook' has no attribute {name!r}")
    with warnings.catch_warnings():
        # In notebooks transformers warns that its progress bars need ipywidgets; none is shown.
        warnings.filterwarnings("ignore", "IProgress not found")
        return getattr(import_module(homes[name]), name)


def __dir__() -> list[str]:
    """Return the sorted public names, without modules imported as attributes."""
    return sorted(__all__)
