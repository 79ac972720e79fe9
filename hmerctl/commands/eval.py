"""``hmerctl eval``: score a checkpoint or a bundle on a dataset."""

from pathlib import Path

import typer

from hmerctl.commands.common import (
    BeamOption,
    GrammarOption,
    LengthOption,
    PruneOption,
    RereadOption,
    print_json,
    progress,
)


def evaluate(
    model: Path = typer.Argument(help="A checkpoint folder, or any bundle."),
    data: Path = typer.Option(..., help="Dataset folder made by 'hmerctl data prepare'."),
    beam: BeamOption = None,
    length_power: LengthOption = None,
    prune: PruneOption = None,
    grammar: GrammarOption = None,
    reread: RereadOption = None,
    limit: int | None = typer.Option(None, min=1, help="Only so many expressions, drawn at random (seed 0)."),
    predictions: Path | None = typer.Option(None, help="Write what was read: lines of id TAB tokens."),
    readings: Path | None = typer.Option(None, help="Write log-probabilities too, as JSON lines."),
    confusions: int = typer.Option(10, min=0, help="How many of the most frequent token errors to list."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Read a labelled dataset with a checkpoint or a bundle, and score what was read.

    Prints the rates of right expressions (ExpRate, and within one and two errors) by tokens and by trees, structure
    rates, BLEU-4, perplexity, edit distance, confusions, and results by length and structure. The same decoding runs
    over PyTorch (a checkpoint) and over any bundle's engine: as the model says, but for the options that are given.
    Example:

    hmerctl eval runs/edge/best --data data/valid2014 --predictions mine.txt
    """
    import dataclasses

    import numpy as np

    from hmerctl.commands.score import print_scores
    from hmerctl.runtime.errors import DataError
    from hmerctl.runtime.files import check_writable, write_text
    from hmerctl.targets.opened import open_model
    from hmerctl.train.dataset import ExpressionDataset
    from hmerctl.train.evaluate import read_dataset, save_readings, score_readings

    check_writable(predictions, readings)
    opened = open_model(model)
    dataset = ExpressionDataset(data)
    if not len(dataset):
        raise DataError(f"{data}: holds no expressions to score")
    chosen = list(range(len(dataset)))
    if limit is not None:
        chosen = sorted(np.random.default_rng(0).permutation(len(dataset))[:limit].tolist())
    changes = {"beams": beam, "length_power": length_power, "prune": prune, "grammar": grammar, "reread": reread}
    decoding, options = opened.decoding.but(**changes), opened.options(**changes)
    expressions = [dataset[i] for i in chosen]
    reader = read_dataset(opened.engine, expressions, opened.vocabulary, opened.raster, options, opened.padding)
    read = list(progress(reader, "reading", len(chosen)))
    if predictions is not None:
        write_text(predictions, "".join(f"{r.id}\t{' '.join(r.tokens)}\n" for r in read))
    if readings is not None:
        save_readings(readings, read)
    scores = score_readings(read)
    scores = dataclasses.replace(scores, confusions=scores.confusions[:confusions])
    if as_json:
        print_json(
            {
                "model": model.resolve().name,
                "data": data.resolve().name,
                "engine": opened.engine.name,
                "beams": decoding.beams,
                "length_power": decoding.length_power,
                "prune": decoding.prune,
                "grammar": decoding.grammar,
                "reread": decoding.reread,
                "reread_work": decoding.reread_work,
                **scores.to_dict(),
            }
        )
    else:
        print_scores(scores, f"{opened.name} on {data.name}: {opened.engine.name}, {decoding.described()}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("eval")(evaluate)
