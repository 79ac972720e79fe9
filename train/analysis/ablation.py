"""Train the models of a grid at an equal budget, one after the other, and keep what each is worth.

Every cell of the grid has its own run folder. A cell that is finished has a ``result.json`` and is not run again; one
that was stopped goes on from its last saved state.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.files import write_text
from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.analysis.grid import Cell, Grid
from hmerctl.train.checkpoint import load_checkpoint
from hmerctl.train.config import to_json
from hmerctl.train.loop import LAST, STATE, RunOptions, fit
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.run_data import load_validation
from hmerctl.train.validation import Read, read_batch, scores

ASKED, TRAINED, RESULT = "asked.json", "trained.json", "result.json"


@dataclass(frozen=True)
class Task:
    """What every cell gets alike.

    Attributes:
        data: dataset folders to train on.
        valid: dataset folder to score on, all of it unless ``limit`` says how many expressions.
        out: one folder for each cell goes here.
        max_steps, max_seconds: budget of each cell, whichever ends first.
        limit: expressions to score on, the same random ones for all.
    """

    data: tuple[Path, ...]
    valid: Path
    out: Path
    max_steps: int | None = None
    max_seconds: float | None = None
    limit: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the place of the results."""
        budget = {"max_steps": self.max_steps, "max_seconds": self.max_seconds, "limit": self.limit}
        return {"data": [str(p.resolve()) for p in self.data], "valid": str(self.valid.resolve()), **budget}


def run_grid(
    grid: Grid,
    task: Task,
    cost: Callable[[Recognizer], Any],
    resume: bool = False,
    done: Callable[[Cell, list[dict[str, Any]]], None] = lambda cell, results: None,
    vocabulary: Vocabulary = CROHME,
) -> list[dict[str, Any]]:
    """Train and score every cell.

    Args:
        grid: from ``read_grid``.
        task: what every cell gets.
        cost: dataclass of what a trained model costs; goes into its result.
        resume: go on where an earlier call with the same task stopped.
        done: told each finished cell and all results so far.
        vocabulary: of the models.

    Returns:
        the results, in the order of the grid.

    Raises:
        ConfigError: a model of the grid cannot be built (said before any is trained), the folder holds runs
            and ``resume`` is false, or it holds others than those asked for.
    """
    for cell in grid.cells:
        _check(cell, task, resume, vocabulary)
    results: list[dict[str, Any]] = []
    for cell in grid.cells:
        results.append(_run(cell, task, cost, vocabulary))
        done(cell, results)
    return results


def _asked(cell: Cell, task: Task) -> dict[str, Any]:
    """What makes two runs the same, as it reads back from a file."""
    return json.loads(to_json({"preset": cell.preset.to_dict(), **task.to_dict()}))


def _check(cell: Cell, task: Task, resume: bool, vocabulary: Vocabulary) -> None:
    try:
        Recognizer(cell.preset.model, vocabulary)
    except ConfigError as error:
        raise ConfigError(f"run {cell.name!r}: {error}") from error
    file = task.out / cell.name / ASKED
    if not file.exists():
        return
    if not resume:
        raise ConfigError(f"{task.out}: holds runs of a grid already; give --resume, or another --out")
    if json.loads(file.read_text()) != _asked(cell, task):
        raise ConfigError(f"{file}: this run had another preset, budget or data; give another --out, or remove it")


def _run(cell: Cell, task: Task, cost: Callable[[Recognizer], Any], vocabulary: Vocabulary) -> dict[str, Any]:
    folder = task.out / cell.name
    if (folder / RESULT).is_file():
        return json.loads((folder / RESULT).read_text())
    write_text(folder / ASKED, to_json(_asked(cell, task)))
    if not (folder / TRAINED).is_file():
        resume = (folder / STATE).is_dir()
        options = RunOptions(task.data, task.valid, folder, task.max_seconds, task.max_steps, resume=resume)
        write_text(folder / TRAINED, to_json(fit(cell.preset, options, vocabulary)))
    model, _ = load_checkpoint(folder / LAST)
    result = {
        "name": cell.name,
        "variant": cell.variant,
        "seed": cell.seed,
        **json.loads((folder / TRAINED).read_text()),
        **_score(model, cell, task),
        "cost": dataclasses.asdict(cost(model)),
    }
    write_text(folder / RESULT, to_json(result))
    return result


def _score(model: Recognizer, cell: Cell, task: Task) -> dict[str, Any]:
    """Figures of greedy decoding, as in ``Scores``; ``exprate`` and ``within_*`` follow the token convention."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = dataclasses.replace(cell.preset.train, validate_samples=task.limit or sys.maxsize)
    batches = load_validation(task.valid, model.vocabulary, dataclasses.replace(cell.preset, train=train))
    read: list[Read] = []
    model.to(device)
    for batch in batches:
        batch.raster, batch.size = batch.raster.to(device), batch.size.to(device)
        read += read_batch(model, batch)
    model.cpu()
    found = scores(read)
    return {
        "expressions": found.expressions,
        "exprate": found.token.exact,
        "interval": [found.token.interval.low, found.token.interval.high],
        "within_1": found.token.within_1,
        "within_2": found.token.within_2,
        "stru_rate": found.stru_rate,
        "structure_rate": found.structure_rate,
        "perplexity": found.perplexity,
        "bleu4": found.bleu4,
        "edit_distance": found.edit_distance,
        # Models with one raster contract read the same pictures in the same order, and can be compared one by one.
        "raster": dataclasses.asdict(cell.preset.raster),
        "right": [r.target == r.tokens for r in read],
    }
