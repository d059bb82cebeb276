"""Work is shared out whole, whatever threads there are."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headbook import threads


@pytest.fixture(params=["torch", "own", "none", "torch's are not there", "one in the other"])
def team(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Torch's threads, where they can be had; a pool; no other thread."""
    if "not there" in request.param:
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif request.param == "torch" and threads._openmp() is None:
        pytest.skip("torch has another OpenMP runtime here")
    with ExitStack() as stack:
        if "torch" in request.param or "other" in request.param:
            stack.enter_context(threads.torch_threads())
        if request.param == "own" or "other" in request.param:
            stack.enter_context(threads.own_threads())
        yield request.param
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headbook")]


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, 5, 64])
def test_every_piece_is_done_once(n_threads: int, size: int) -> None:
    done: list[int] = []
    threads.share_out(lambda first, last: done.extend(range(first, last)), size, n_threads)
    assert sorted(done) == [*range(size)]


def test_several_threads_work_at_once(team: str) -> None:
    """Each waits until the other has come; alone it would wait in vain."""
    if team == "none":
        pytest.skip("there is one thread only")
    both = threading.Barrier(2, timeout=20)

    def meet(*_: int) -> None:
        both.wait()

    threads.share_out(meet, 2, 2)


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize("n_threads", [1, 2])
def test_what_goes_wrong_in_a_thread_is_raised(n_threads: int) -> None:
    def fail(first: int, last: int) -> None:
        if last == 4:
            raise ValueError(f"from {first}")

    with pytest.raises(ValueError, match="from "):
        threads.share_out(fail, 4, n_threads)
