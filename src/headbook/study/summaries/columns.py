"""What one number of a study is: the columns of its sums."""

from typing import NamedTuple

from headbook.terms import Space, State, View


class HeadColumn(NamedTuple):
    """What one number of a head is."""

    metric: str
    view: View
    label: str


class TokenColumn(NamedTuple):
    """What one number of a layer's tokens is; ``label`` is a class of tokens."""

    metric: str
    state: State
    space: Space | None
    label: str

    @property
    def words(self) -> str:
        """What it is beside its metric, as labels of tables say it: ``mid/positional/NOUN``."""
        return "/".join(part for part in (self.state, self.space, self.label) if part)
