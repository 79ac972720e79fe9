"""Train the models of a grid at an equal budget, and keep what each is worth.

Every cell of the grid has its own run folder. A cell that is finished has a ``result.json`` and is not run again; one
that was stopped goes on from its last saved state; one that failed has a ``failed.json`` and is tried again.
"""

import dataclasses
import functools
import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmerctl.runtime.errors import ConfigError, HmerError, StoppedError
from hmerctl.runtime.files import write_text
from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.analysis.grid import Cell, Grid
from hmerctl.train.analysis.jobs import run_apart
from hmerctl.train.checkpoint import load_checkpoint
from hmerctl.train.config import preset_from_dict, to_json
from hmerctl.train.loop import LAST, STATE, RunOptions, fit, start
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.module import TrainingModule
from hmerctl.train.run_data import read_all
from hmerctl.train.validation import scores

ASKED, TRAINED, RESULT, FAILED = "asked.json", "trained.json", "result.json", "failed.json"

Result = dict[str, Any]
"""One cell's figures; with ``failed``, the reason, instead of them if there are none."""


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


def run_grid(
    grid: Grid,
    task: Task,
    cost: Callable[[Recognizer], Any],
    resume: bool = False,
    done: Callable[[Cell, list[Result]], None] = lambda cell, results: None,
    vocabulary: Vocabulary = CROHME,
    where: Sequence[str | None] = (None,),
) -> list[Result]:
    """Train and score every cell; one that fails keeps no other from its turn.

    Args:
        grid: from ``read_grid``.
        task: what every cell gets.
        cost: dataclass of what a trained model costs; goes into its result. With several places it must be
            something that can be pickled.
        resume: go on where an earlier call with the same task stopped.
        done: told each cell that ended and all results so far, in the order of the grid.
        vocabulary: of the models.
        where: from ``places``: with more than one, as many cells at a time, each in a process of its own; with one,
            all in this process.

    Returns:
        the results, in the order of the grid.

    Raises:
        ConfigError: a model of the grid cannot be built or started (said before any is trained), the folder holds
            runs and ``resume`` is false, or it holds others than those asked for.
        StoppedError: by a signal, with the state of the cell saved.
    """
    for cell in grid.cells:
        _check_folder(cell, grid, task, resume)
    finished = [cell for cell in grid.cells if (task.out / cell.name / RESULT).is_file()]
    waiting = [cell for cell in grid.cells if cell not in finished]
    for cell in waiting:
        _check_model(cell, grid, vocabulary)
    for cell in finished:
        done(cell, found(grid, task))
    for cell in waiting:
        (task.out / cell.name / FAILED).unlink(missing_ok=True)
    work = functools.partial(_attempt, grid=grid, task=task, cost=cost, vocabulary=vocabulary)
    for cell in _ended(work, waiting, task, where):
        done(cell, found(grid, task))
    return found(grid, task)


def measure_grid(
    grid: Grid,
    task: Task,
    cost: Callable[[Recognizer], Any],
    done: Callable[[Cell, list[Result]], None] = lambda cell, results: None,
) -> list[Result]:
    """Measure the cost of the finished cells anew, one right after the other, and train nothing.

    Arguments and results are those of ``run_grid``.

    Raises:
        ConfigError: none is finished, or the folder holds other runs than those asked for.
    """
    if not any("failed" not in result for result in found(grid, task)):
        raise ConfigError(f"{task.out}: no finished run to measure; run the grid first, without --measure")
    for cell in grid.cells:
        _check_folder(cell, grid, task, resume=True)
        file = task.out / cell.name / RESULT
        if file.is_file():
            model, _ = load_checkpoint(file.parent / LAST)
            result = {**json.loads(file.read_text()), "cost": dataclasses.asdict(cost(model))}
            write_text(file, to_json(result))
            done(cell, found(grid, task))
    return found(grid, task)


def found(grid: Grid, task: Task) -> list[Result]:
    """Results of the cells that ended, in the order of the grid."""
    results: list[Result] = []
    for cell in grid.cells:
        for file in (task.out / cell.name / RESULT, task.out / cell.name / FAILED):
            if file.is_file():
                results.append(json.loads(file.read_text()))
                break
    return results


def _ended(
    work: Callable[[Cell], None], cells: Sequence[Cell], task: Task, where: Sequence[str | None]
) -> Iterator[Cell]:
    """Do the cells and tell each that ended."""
    if len(where) == 1:
        for cell in cells:
            work(cell)
            yield cell
        return
    for cell, code in run_apart(work, cells, where):
        if not any((task.out / cell.name / name).is_file() for name in (RESULT, FAILED)):
            _fail(cell, task, f"its process ended with code {code}")
        yield cell


def _asked(cell: Cell, grid: Grid, task: Task) -> dict[str, Any]:
    """What makes two runs the same, as it reads back from a file."""
    asked = {
        "preset": cell.preset.to_dict(),
        "init": str(grid.init.resolve()) if grid.init else None,
        "init_parts": grid.init_parts,
        "data": [str(path.resolve()) for path in task.data],
        "valid": str(task.valid.resolve()),
        "max_steps": task.max_steps,
        "max_seconds": task.max_seconds,
        "limit": task.limit,
    }
    return json.loads(to_json(asked))


def _check_folder(cell: Cell, grid: Grid, task: Task, resume: bool) -> None:
    file = task.out / cell.name / ASKED
    if not file.exists():
        return
    if not resume:
        raise ConfigError(f"{task.out}: holds runs of a grid already; give --resume, or another --out")
    before = json.loads(file.read_text())
    # A later version may have settings more: what the file does not say had their defaults.
    before["preset"] = preset_from_dict(before["preset"], str(file)).to_dict()
    if json.loads(to_json(before)) != _asked(cell, grid, task):
        raise ConfigError(
            f"{file}: this run had another preset, start, budget or data; give another --out, or remove it"
        )


def _check_model(cell: Cell, grid: Grid, vocabulary: Vocabulary) -> None:
    try:
        start(TrainingModule(cell.preset, vocabulary), grid.init, grid.init_parts)
    except ConfigError as error:
        raise ConfigError(f"run {cell.name!r}: {error}") from error


def _attempt(cell: Cell, grid: Grid, task: Task, cost: Callable[[Recognizer], Any], vocabulary: Vocabulary) -> None:
    try:
        _run(cell, grid, task, cost, vocabulary)
    except StoppedError:
        raise
    except HmerError as error:
        _fail(cell, task, str(error))
    except Exception as error:  # whatever one model does, the others have their turn
        _fail(cell, task, f"{type(error).__name__}: {error}")


def _fail(cell: Cell, task: Task, reason: str) -> None:
    """Keep why a cell has no result, in one line, and the traceback of the error if there is one."""
    failed = {"name": cell.name, "variant": cell.variant, "seed": cell.seed, "failed": " ".join(reason.split())}
    write_text(task.out / cell.name / FAILED, to_json({**failed, "traceback": traceback.format_exc()}))


def _run(cell: Cell, grid: Grid, task: Task, cost: Callable[[Recognizer], Any], vocabulary: Vocabulary) -> None:
    folder = task.out / cell.name
    write_text(folder / ASKED, to_json(_asked(cell, grid, task)))
    if not (folder / TRAINED).is_file():
        options = RunOptions(
            task.data,
            task.valid,
            folder,
            task.max_seconds,
            task.max_steps,
            resume=(folder / STATE).is_dir(),
            init=grid.init,
            init_parts=grid.init_parts,
        )
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


def _score(model: Recognizer, cell: Cell, task: Task) -> dict[str, Any]:
    """Figures of greedy decoding, as in ``Scores``; ``exprate`` and ``within_*`` follow the token convention."""
    read = read_all(model, task.valid, cell.preset, task.limit)
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
