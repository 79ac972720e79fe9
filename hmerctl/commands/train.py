"""``hmerctl train``: train a recogniser from a preset."""

import re
from pathlib import Path

import typer

from hmerctl.commands.common import console, print_json
from hmerctl.runtime.errors import ConfigError


def seconds(text: str) -> float:
    """A duration such as ``90s``, ``45m``, ``3h`` or ``1h30m`` in seconds.

    Raises:
        ConfigError: anything else, or nothing of it.
    """
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    if not match or not any(match.groups()):
        raise ConfigError(f"--max-time {text!r}: write hours, minutes and seconds as in 3h, 45m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + rest
    if not total:
        raise ConfigError(f"--max-time {text!r}: no time at all; give a longer budget")
    return total


def train(
    out: Path = typer.Option(..., help="Run folder: state to resume, checkpoints, logs."),
    preset: str | None = typer.Option(None, help="Shipped preset (edge, ...) or a .toml file; default edge."),
    data: list[Path] = typer.Option([], help="Dataset folder to train on, made by 'hmerctl data prepare' (repeat)."),
    valid: Path | None = typer.Option(None, help="Dataset folder to validate on by decoding."),
    set_: list[str] = typer.Option(
        [],
        "--set",
        metavar="KEY=VALUE",
        help="Change one value of the preset, e.g. train.learning_rate=6e-4 (repeat).",
    ),
    max_time: str | None = typer.Option(None, help="Budget of training time, e.g. 3h or 45m."),
    max_steps: int | None = typer.Option(
        None, help="Budget in steps of the optimiser; with --max-time whichever ends first.", min=1
    ),
    resume: bool = typer.Option(False, "--resume", help="Go on with the run in --out, with the same next batches."),
    init: Path | None = typer.Option(None, help="Checkpoint to start the weights from."),
    init_parts: list[str] = typer.Option(
        [],
        help="Part to start from it: encoder, position, context or decoder (repeat); all that fit if none is named.",
    ),
    devices: int = typer.Option(1, help="Processes (GPUs, or CPU processes) per machine.", min=1),
    nodes: int = typer.Option(1, help="Machines.", min=1),
    json_: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Train a recogniser from a preset.

    Uses a GPU in mixed precision where there is one, bf16 on CPUs that have it. A run that was stopped, or killed,
    goes on with --resume. The weights to evaluate and export are in OUT/best and OUT/last. Example:

    hmerctl train --preset edge --data data/train --valid data/valid2014 --out runs/edge --max-time 3h
    """
    import dataclasses

    from lightning.pytorch.utilities import rank_zero_only

    from hmerctl.train.config import load_preset
    from hmerctl.train.loop import RunOptions, fit, read_run

    budget = seconds(max_time) if max_time else None
    if resume:
        if preset or set_ or data or valid or init or init_parts:
            raise ConfigError("--resume goes on with the run as it was: give only --out and, if wanted, a new budget")
        chosen, options = read_run(out)
        options = dataclasses.replace(
            options,
            max_seconds=options.max_seconds if budget is None else budget,
            max_steps=options.max_steps if max_steps is None else max_steps,
        )
    else:
        if not data or valid is None:
            raise ConfigError("give --data and --valid: dataset folders made by 'hmerctl data prepare'")
        chosen = load_preset(preset or "edge", set_)
        options = RunOptions(
            tuple(data),
            valid,
            out,
            budget,
            max_steps,
            init=init,
            init_parts=tuple(init_parts),
            devices=devices,
            nodes=nodes,
        )
    if options.max_seconds is None and options.max_steps is None:
        raise ConfigError("give a budget: --max-time (e.g. 3h) or --max-steps")
    result = fit(chosen, options)
    # Each process of a run on several devices comes here; the first one reports.
    if rank_zero_only.rank:  # type: ignore[attr-defined]
        return
    if json_:
        print_json({**result, "out": out})
    else:
        console().print(
            f"{result['steps']} steps, {result['samples']} samples, {result['seconds'] / 3600:.2f} h; "
            f"best ExpRate on the validation sample {result['best_exprate']:.1f} %; "
            f"weights in {out / 'best'} and {out / 'last'}"
        )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)
