"""Searches that ask for one evaluation at a time, answered together.

A search, such as torch's LBFGS, calls a function whenever it needs to be evaluated. Here several of them share the evaluation:
each runs in a thread of its own until it asks, and when all that are left have asked they are evaluated at once. Only one thread
runs at a time, so that the order of things, and with it every number, is that of the searches one after the other.
"""

import threading
from collections.abc import Callable, Sequence

import torch

Ask = Callable[[], None]
Search = Callable[[Ask], None]


def answer_together(searches: Sequence[Search], evaluate: Ask) -> None:
    """Run the searches to their ends; `evaluate` is called when all that are left have asked."""
    if len(searches) == 1:
        searches[0](evaluate)
        return
    players = [_Player(search) for search in searches]
    try:
        waiting = players
        while True:
            for player in waiting:
                player.play()
            waiting = [player for player in waiting if not player.over]
            if not waiting:
                return
            evaluate()
    finally:
        for player in players:
            player.leave()


class _Abandoned(BaseException):
    """Ends a search that nobody waits for."""


class _Player:
    def __init__(self, search: Search) -> None:
        self.search, self.over, self.abandoned = search, False, False
        self.error: BaseException | None = None
        self.go, self.back = threading.Semaphore(0), threading.Semaphore(0)
        # A new thread would use all processors, and the last digits of a sum depend on how many.
        self.thread = threading.Thread(target=self._run, args=(torch.get_num_threads(),), daemon=True)
        self.thread.start()

    def play(self) -> None:
        """Go on until the search asks again or is over."""
        self.go.release()
        self.back.acquire()
        if self.error is not None:
            raise self.error

    def leave(self) -> None:
        self.abandoned = True
        self.go.release()
        self.thread.join()

    def _run(self, threads: int) -> None:
        torch.set_num_threads(threads)
        try:
            self._wait()
            self.search(self._ask)
        except _Abandoned:
            pass
        except BaseException as error:  # raised again where `play` was called
            self.error = error
        self.over = True
        self.back.release()

    def _ask(self) -> None:
        self.back.release()
        self._wait()

    def _wait(self) -> None:
        self.go.acquire()
        if self.abandoned:
            raise _Abandoned
