"""Ctrl-C and SIGTERM during training: the batch at hand is finished, the state saved, and the run ends."""

import signal
import threading
from types import FrameType
from typing import Any

import lightning.pytorch as pl

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt(pl.Callback):
    """Turns the first of these signals into a wish to stop; a second one acts at once, as it would without us.

    Attributes:
        wanted: whether a signal has come.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """After Lightning has put its own handlers in place. Only a main thread may handle signals."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        self._restore()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """What was there before comes back."""
        self._restore()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """As at the end."""
        self._restore()

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
