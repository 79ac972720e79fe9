"""Run pieces of work in processes of their own, a few at a time, each with a GPU of its own where there are some."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

import torch

from hmerctl.runtime.errors import ConfigError, StoppedError

T = TypeVar("T")

VISIBLE = "CUDA_VISIBLE_DEVICES"


def places(jobs: int | None = None) -> list[str | None]:
    """Where pieces of work may run at the same time.

    Args:
        jobs: how many at a time; None for as many as there are GPUs, or one on a CPU.

    Returns:
        a GPU as CUDA_VISIBLE_DEVICES names it for each process, or None for each process on the CPU.

    Raises:
        ConfigError: more jobs than GPUs.
    """
    named = os.environ.get(VISIBLE)
    gpus = named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]
    if not torch.cuda.is_available():
        return [None] * (jobs or 1)
    if jobs and jobs > len(gpus):
        raise ConfigError(f"--jobs {jobs}: there are {len(gpus)} GPUs; give no more than one job for each")
    return list(gpus[:jobs])


def run_apart(
    work: Callable[[T], None], pieces: Sequence[T], where: Sequence[str | None]
) -> Generator[tuple[T, int], None, None]:
    """Do every piece in a process of its own.

    Args:
        work: does one piece; can be pickled, as can the pieces.
        pieces: begun in this order.
        where: from ``places``; as many run at a time.

    Yields:
        each piece when its process has ended, with the exit code: negative if it was killed. When the caller stops
        early, by an error or Ctrl-C, the processes are told to end, and waited for.
    """
    context = get_context("spawn")
    threads = max(torch.get_num_threads() // len(where), 1)
    waiting, free = list(pieces), list(where)
    running: dict[int, tuple[SpawnProcess, T, str | None]] = {}
    try:
        while waiting or running:
            while waiting and free:
                piece, place = waiting.pop(0), free.pop(0)
                process = context.Process(target=_begin, args=(work, piece, place, threads))
                process.start()
                running[process.sentinel] = (process, piece, place)
            for sentinel in wait(list(running)):
                process, piece, place = running.pop(sentinel)  # type: ignore[arg-type]
                process.join()
                free.append(place)
                yield piece, process.exitcode or 0
    finally:
        for process, _, _ in running.values():
            process.terminate()
        for process, _, _ in running.values():
            process.join()


def _begin(work: Callable[[Any], None], piece: Any, place: str | None, threads: int) -> None:
    # Ctrl-C is for our parent, which then ends us with a signal of its own: a second one would not let us save.
    os.setpgrp()
    # CUDA is not yet in use here: it looks at the variable when it is first asked.
    if place is not None:
        os.environ[VISIBLE] = place
    torch.set_num_threads(threads)
    try:
        work(piece)
    except StoppedError as error:
        sys.exit(str(error))
