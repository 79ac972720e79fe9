"""The progress bar of a training run: how much of its budget is used, and how well it learns."""

import sys
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

FIGURES = {"loss": "loss {:.3f}", "token_accuracy": "tokens {:.1%}", "learning_rate": "rate {:.1e}"}
"""What is shown of a step, and how."""


class BudgetBar(ProgressBar):
    """A bar on stderr; nothing where that is not a terminal.

    Args:
        used: tells which part of the budget is used, 0 to 1.
    """

    REFRESH_STEPS = 5

    def __init__(self, used: Callable[[], float]) -> None:
        super().__init__()
        self.used, self._shown = used, sys.stderr.isatty()

    def disable(self) -> None:
        """Lightning's hook: called in all processes but the first."""
        self._shown = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Show the bar."""
        if not self._shown:
            return
        columns = (TextColumn("training"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True))
        self._task = self._bar.add_task("", total=1.0)
        self._bar.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move it, now and then: reading a figure waits for the device."""
        if self._shown and trainer.global_step % self.REFRESH_STEPS == 0:
            self._bar.update(self._task, completed=self.used(), description=describe(trainer))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The newest ExpRate stays in sight from then on."""
        if self._shown:
            self._bar.update(self._task, description=describe(trainer))

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Leave the last line standing."""
        if self._shown:
            self._bar.update(self._task, completed=self.used())
            self._bar.stop()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        if self._shown and hasattr(self, "_bar"):
            self._bar.stop()


def describe(trainer: pl.Trainer) -> str:
    """Step, the figures of the newest step, and the newest ExpRate, in one line."""
    found = trainer.callback_metrics
    parts = [f"step {trainer.global_step}"]
    parts += [text.format(float(found[name])) for name, text in FIGURES.items() if name in found]
    if "valid_exprate" in found:
        parts.append(f"ExpRate {float(found['valid_exprate']):.1f} %")
    return ", ".join(parts)
