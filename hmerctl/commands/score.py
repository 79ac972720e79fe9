"""``hmerctl score``: score the output of any recogniser, given as a text file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hmerctl.commands.common import print_json, print_table

if TYPE_CHECKING:
    from hmerctl.train.metrics.scores import GroupScore, Rates, Scores
    from hmerctl.train.metrics.statistics import PairedTest

_NAMED = 20


def register(app: typer.Typer) -> None:
    app.command()(score)


def score(
    reference: Path = typer.Argument(metavar="REF", help="Targets: a text file of lines 'id TAB LaTeX'."),
    prediction: Path = typer.Argument(metavar="PRED", help="Predictions, in the same form; order does not matter."),
    versus: Path | None = typer.Option(None, help="A second output for REF, compared with PRED by paired tests."),
    confusions: int = typer.Option(10, min=0, help="How many of the most frequent token errors to list."),
    seed: int = typer.Option(0, min=0, help="Seed of the bootstrap intervals."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON, with all names."),
) -> None:
    """Score predictions: ExpRate by tokens and by trees, structure, BLEU, edit distance, confusions.

    Targets without a prediction count as wrong and are named. The LaTeX of both files is normalised first, so that
    spacing, braces, script order and synonyms do not matter. Example:

    hmerctl score caption_2014.txt output.txt --confusions 20
    """
    from dataclasses import replace

    from hmerctl.train.metrics.scores import score as score_all

    targets = _read(reference, empty_labels=False)
    scores = score_all(targets, _read(prediction, empty_labels=True), seed=seed)
    scores = replace(scores, confusions=scores.confusions[:confusions])
    test = None if versus is None else _compare(targets, prediction, versus, seed)
    if as_json:
        print_json({**scores.to_dict(), **({} if test is None else {"versus": test})})
        return
    print_scores(scores, f"{prediction} against {reference}")
    if test is not None:
        _print_test(test, prediction, versus)


def print_scores(scores: "Scores", title: str) -> None:
    """Print scores for people, with the conventions they follow."""
    rows = [*_rate_rows("token", scores.token), *_rate_rows("tree", scores.tree)]
    rows += [
        ("StruRate (tree without labels)", _percent(scores.stru_rate)),
        ("structure rate, by expression", _percent(scores.structure_rate)),
        ("structure rate, by symbol", _percent(scores.structural_symbol_rate)),
        ("equal tokens without normalisation", _percent(scores.identical)),
        ("BLEU-4", f"{scores.bleu4:.4f}"),
        ("edit distance, mean", f"{scores.edit_distance:.3f}"),
        ("edit similarity", _percent(scores.edit_similarity)),
        ("token error rate (WER)", _percent(scores.token_error_rate)),
    ]
    if scores.perplexity is not None:
        rows.append(("perplexity", f"{scores.perplexity:.3f}"))
    print_table(["score", f"{scores.expressions} expressions"], rows, title=title)
    for name, meaning in scores.conventions.items():
        typer.echo(f"  {name}: {meaning}")
    _print_groups("tokens", scores.by_length)
    _print_groups("structure", scores.by_structure)
    if scores.confusions:
        confused = [(item.target or "(none)", item.predicted or "(none)", item.count) for item in scores.confusions]
        print_table(["target", "predicted", "times"], confused, title="most frequent token errors")
    _print_names("no prediction, counted as wrong", scores.missing)
    _print_names("predicted, but not in the targets", scores.unknown)
    _print_names("predictions that are not well-formed LaTeX, wrong as trees", scores.not_well_formed)
    _print_names("targets that are not well-formed LaTeX, wrong as trees", scores.targets_not_well_formed)


def _read(path: Path, empty_labels: bool) -> dict[str, list[str]]:
    from hmerctl.train.captions import read_captions
    from hmerctl.train.latex import tokenise

    return {name: tokenise(caption.text) for name, caption in read_captions(path, empty_labels).items()}


def _compare(targets: dict[str, list[str]], prediction: Path, versus: Path, seed: int) -> "PairedTest":
    from hmerctl.train.metrics.expression import score_expression
    from hmerctl.train.metrics.statistics import compare

    outputs = [_read(path, empty_labels=True) for path in (prediction, versus)]
    right = [[score_expression(name, targets[name], out.get(name)).right() for name in targets] for out in outputs]
    return compare(right[0], right[1], seed=seed)


def _rate_rows(convention: str, rates: "Rates") -> list[tuple[str, str]]:
    interval = f"{_percent(rates.interval.low)} to {_percent(rates.interval.high)}"
    return [
        (f"ExpRate, {convention}", f"{_percent(rates.exact)}  ({rates.interval.level:.0%}: {interval})"),
        (f"  within 1, {convention}", _percent(rates.within_1)),
        (f"  within 2, {convention}", _percent(rates.within_2)),
    ]


def _print_groups(kind: str, groups: Sequence["GroupScore"]) -> None:
    rows = [
        (g.name, g.expressions, _percent(g.token), _percent(g.tree), _percent(g.token_error_rate)) for g in groups
    ]
    print_table([kind, "expressions", "ExpRate, token", "ExpRate, tree", "token errors"], rows)


def _print_names(what: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - _NAMED} more (--json names all)" if len(names) > _NAMED else ""
        typer.echo(f"{what} ({len(names)}): {', '.join(names[:_NAMED])}{more}")


def _print_test(test: "PairedTest", first: Path, second: Path | None) -> None:
    difference, low, high = (100 * share for share in (test.difference, test.interval.low, test.interval.high))
    rows = [
        (f"ExpRate of {first}", _percent(test.first)),
        (f"ExpRate of {second}", _percent(test.second)),
        (
            "second minus first, in points",
            f"{difference:+.2f}  ({test.interval.level:.0%}: {low:+.2f} to {high:+.2f})",
        ),
        ("right in one only: first, second", f"{test.only_first}, {test.only_second}"),
        ("p, McNemar exact", f"{test.p_mcnemar:.4g}"),
        ("p, paired bootstrap", f"{test.p_bootstrap:.4g}"),
    ]
    print_table(["paired test, token convention", ""], rows)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
