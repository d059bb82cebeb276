"""Work shared out among processes."""

import pytest

from headbook.errors import OutputError
from headbook.writing.parallel import Shares
from shares import dies, refuses, squares

pytestmark = pytest.mark.slow  # each process imports Python's libraries afresh


def test_every_piece_of_work_is_done_once() -> None:
    for processes in (1, 3):
        with Shares(squares, (10,), processes) as found:
            assert sorted(found) == [number**2 for number in range(10)]


def test_what_a_process_raises_is_raised_where_the_work_was_asked_for() -> None:
    with pytest.raises(OutputError, match="no room"), Shares(refuses, (), 2) as found:
        list(found)


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="died"), Shares(dies, (), 2) as found:
        list(found)
