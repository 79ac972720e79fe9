r"""All scores of one set of predictions.

Two conventions of "right", never to be mixed in one table (``CONVENTIONS``): *token* compares normalised tokens,
*tree* compares symbol layout trees. The normal form has one spelling for each tree, so a well-formed prediction
is right under both or neither. They differ in how near misses count (a symbol missed at the end is one token error,
but two label errors: the symbol and its edge); figures without normalisation are lower than both (``identical``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hmerctl.train.metrics.alignment import Confusion, confusions
from hmerctl.train.metrics.expression import ScoredExpression, score_expression
from hmerctl.train.metrics.statistics import Interval, bootstrap_interval

CONVENTIONS = {
    "token": "tokens equal after normalisation; within k: token edit distance at most k",
    "tree": "symbol layout trees equal (symLG-like); within k: at most k label errors (nodes and edges)",
    "bleu4": "corpus BLEU-4 by sacrebleu on normalised tokens (tokenize='none', smoothing 'exp'), 0 to 1",
}
"""What the figures mean; printed with them."""

LENGTHS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 50), (51, None))
"""Target lengths in normalised tokens that results are grouped by, both ends included."""


@dataclass(frozen=True)
class Rates:
    """Shares of all expressions that are right, and right but for one or two errors, under one convention.

    Attributes:
        exact: the recognition rate, ExpRate.
        within_1, within_2: with at most so many errors.
        interval: bootstrap interval of ``exact``.
    """

    exact: float
    within_1: float
    within_2: float
    interval: Interval


@dataclass(frozen=True)
class GroupScore:
    """Results of the expressions of one kind.

    Attributes:
        name: such as ``6-10`` (tokens) or ``fraction``.
        expressions: how many there are.
        token, tree: ExpRate under the two conventions.
        token_error_rate: token errors per target token.
    """

    name: str
    expressions: int
    token: float
    tree: float
    token_error_rate: float


@dataclass(frozen=True)
class Scores:
    """Scores of predictions against targets. All rates are shares from 0 to 1; missing predictions are wrong.

    Attributes:
        expressions: number of targets.
        token, tree: right ones under the two conventions.
        identical: share with equal tokens as given, without normalisation.
        stru_rate: StruRate: share with equal layout trees when labels are ignored.
        structure_rate: share of expressions in which all structural symbols (``expression.STRUCTURAL``) are right and
            no other is predicted, by the alignment of edit distance; the stricter reading of Zhou 2023.
        structural_symbol_rate: share of the targets' structural symbols that are predicted right, by the same
            alignment; the milder reading. 1 where the targets have none.
        bleu4: see ``CONVENTIONS``.
        edit_distance: mean token edit distance of an expression.
        edit_similarity: 1 - (sum of edit distances) / (sum of the longer length of each pair); grows as the output
            gets better, as the "edit distance" of image-to-LaTeX papers (83.2 % in Zhou 2023) does.
        token_error_rate: token errors per target token (word error rate with tokens as words).
        perplexity: see ``perplexity``; None without teacher-forced log-probabilities.
        not_well_formed: names of predictions that do not parse; wrong as trees.
        targets_not_well_formed: names of targets that do not parse; wrong as trees whatever is predicted.
        missing: names of targets without a prediction.
        unknown: names of predictions without a target; they count nowhere.
        confusions: token errors, most frequent first.
        by_length, by_structure: results by kind of target; an expression may be of several structures.
        conventions: what the figures mean.
    """

    expressions: int
    token: Rates
    tree: Rates
    identical: float
    stru_rate: float
    structure_rate: float
    structural_symbol_rate: float
    bleu4: float
    edit_distance: float
    edit_similarity: float
    token_error_rate: float
    perplexity: float | None
    not_well_formed: tuple[str, ...]
    targets_not_well_formed: tuple[str, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    confusions: tuple[Confusion, ...]
    by_length: tuple[GroupScore, ...]
    by_structure: tuple[GroupScore, ...]
    conventions: Mapping[str, str] = field(default_factory=lambda: dict(CONVENTIONS))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def score(
    targets: Mapping[str, Sequence[str]],
    predictions: Mapping[str, Sequence[str]],
    log_probs: Iterable[Sequence[float]] | None = None,
    seed: int = 0,
) -> Scores:
    """Score predictions against targets, both tokens by name of expression, normalised or not.

    Args:
        targets: the expressions that count.
        predictions: at most one for each; the rest is named in ``missing`` and ``unknown``.
        log_probs: for ``perplexity``, if there are any.
        seed: of the bootstrap.

    Raises:
        ValueError: there are no targets.
    """
    scored = [score_expression(name, target, predictions.get(name)) for name, target in targets.items()]
    unknown = tuple(name for name in predictions if name not in targets)
    return summarise(scored, unknown, None if log_probs is None else perplexity(log_probs), seed)


def summarise(
    scored: Sequence[ScoredExpression], unknown: tuple[str, ...] = (), perplexity: float | None = None, seed: int = 0
) -> Scores:
    """The scores of expressions that were scored one by one. Raises ValueError for none."""
    if not scored:
        raise ValueError("there is nothing to score")
    distances = sum(item.distance for item in scored)
    structural = [item.structural for item in scored]
    expected = sum(item[0] for item in structural)
    return Scores(
        expressions=len(scored),
        token=_rates([[item.right(k) for item in scored] for k in range(3)], seed),
        tree=_rates([[item.tree_right(k) for item in scored] for k in range(3)], seed),
        identical=_share(item.identical for item in scored),
        stru_rate=_share(item.structure for item in scored),
        structure_rate=_share(
            not item.missing and right == wanted and not added
            for item, (wanted, right, added) in zip(scored, structural, strict=True)
        ),
        structural_symbol_rate=sum(right for _, right, _ in structural) / expected if expected else 1.0,
        bleu4=bleu4([item.target for item in scored], [item.predicted for item in scored]),
        edit_distance=distances / len(scored),
        edit_similarity=1 - distances / max(1, sum(max(len(item.target), len(item.predicted)) for item in scored)),
        token_error_rate=_error_rate(scored),
        perplexity=perplexity,
        not_well_formed=tuple(item.name for item in scored if not (item.well_formed or item.missing)),
        targets_not_well_formed=tuple(item.name for item in scored if item.target_tree is None),
        missing=tuple(item.name for item in scored if item.missing),
        unknown=unknown,
        confusions=tuple(confusions(item.alignment for item in scored if not item.missing)),
        by_length=_by_length(scored),
        by_structure=_by_structure(scored),
    )


def bleu4(targets: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU-4 from 0 to 1 by sacrebleu on the tokens as they are (``tokenize="none"``, smoothing "exp")."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize="none", smooth_method="exp", force=True)
    score = bleu.corpus_score([" ".join(p) for p in predictions], [[" ".join(t) for t in targets]]).score
    return min(1.0, score / 100)


def perplexity(log_probs: Iterable[Sequence[float]]) -> float:
    """2 ** H, H being the mean of -log2 p over all tokens of all expressions (Zhou 2023, eq. 8); 1 is best.

    Args:
        log_probs: for each expression the natural log-probabilities of its target tokens, the end token included,
            each given the target tokens before it (teacher-forced).

    Raises:
        ValueError: there are no tokens.
    """
    values = np.concatenate([np.asarray(row, dtype=np.float64).ravel() for row in (*log_probs, ())])
    if values.size == 0:
        raise ValueError("perplexity needs the log-probability of at least one token")
    return float(np.exp2(-(values / np.log(2)).mean()))


def _share(values: Iterable[bool]) -> float:
    flags = list(values)
    return sum(flags) / len(flags)


def _rates(right: Sequence[Sequence[bool]], seed: int) -> Rates:
    exact, within_1, within_2 = (_share(flags) for flags in right)
    return Rates(exact, within_1, within_2, bootstrap_interval(right[0], seed=seed))


def _error_rate(scored: Sequence[ScoredExpression]) -> float:
    return sum(item.distance for item in scored) / max(1, sum(len(item.target) for item in scored))


def _group(name: str, scored: Sequence[ScoredExpression]) -> GroupScore:
    return GroupScore(
        name=name,
        expressions=len(scored),
        token=_share(item.right() for item in scored),
        tree=_share(item.tree_right() for item in scored),
        token_error_rate=_error_rate(scored),
    )


def _by_length(scored: Sequence[ScoredExpression]) -> tuple[GroupScore, ...]:
    groups = []
    for low, high in LENGTHS:
        members = [item for item in scored if low <= len(item.target) and (high is None or len(item.target) <= high)]
        if members:
            groups.append(_group(f"{low}-{high}" if high else f"{low}+", members))
    return tuple(groups)


def _by_structure(scored: Sequence[ScoredExpression]) -> tuple[GroupScore, ...]:
    members: dict[str, list[ScoredExpression]] = {}
    for item in scored:
        for kind in item.kinds:
            members.setdefault(kind, []).append(item)
    order = sorted(members, key=lambda kind: (kind.startswith("depth"), kind.startswith("not"), kind))
    return tuple(_group(kind, members[kind]) for kind in order)
