"""The mean of the weights of checkpoints of one model, e.g. of a run and of the one that it started from.

    python scripts/average.py runs/third/last runs/fourth/last --shares 0.4 0.6 --rank 16 --out runs/average

Weights along one path of training can be averaged where those of strangers cannot: docs/experiments.md. Batch norm's
statistics are averaged with them. All but the weights is the last checkpoint's; ``--rank`` separates its refinement's
kernels (``hmerctl.train.models.transformer.separate``).
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from hmerctl.runtime.errors import HmerError
from hmerctl.train.checkpoint import DESCRIPTION, CheckpointError, load_checkpoint, save_checkpoint
from hmerctl.train.models.recognizer import PARTS, Recognizer


def average(checkpoints: Sequence[Path], shares: Sequence[float], rank: int, out: Path) -> None:
    """Write the mean.

    Raises:
        CheckpointError: one cannot be read or is of another model than the last, or ``out`` is something else.
        ValueError: shares that are not one a checkpoint, or do not add up to 1; a rank, and nothing to separate.
    """
    if len(shares) != len(checkpoints) or not math.isclose(sum(shares), 1):
        raise ValueError(f"{len(checkpoints)} checkpoints need as many shares, which add up to 1")
    loaded = [load_checkpoint(path) for path in checkpoints]
    model, info = loaded[-1]
    if out.exists() and not (out / DESCRIPTION).is_file():
        raise CheckpointError(f"{out}: exists and is no checkpoint; name a new folder")
    decoder = getattr(model.decoder, "config", None)
    if rank and (rank < 0 or not getattr(decoder, "refinement", 0) or getattr(decoder, "refinement_rank", 0)):
        raise ValueError(
            f"{checkpoints[-1]}: rank {rank} needs a decoder with whole refinement kernels, and 1 or more"
        )
    weights = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    for path, share, (other, _) in zip(checkpoints, shares, loaded, strict=True):
        state = other.state_dict()
        same_shapes = {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in weights.items()}
        if not same_shapes or options(other) != options(model) or other.vocabulary != model.vocabulary:
            raise CheckpointError(f"{path}: another model than {checkpoints[-1]}; average checkpoints of one model")
        for name, value in state.items():
            mean = weights[name] + share * value
            weights[name] = mean if value.is_floating_point() else value
    if rank:
        config = replace(info.preset.model, decoder={**info.preset.model.decoder, "refinement_rank": rank})
        separated = Recognizer(config, model.vocabulary)
        separated.load_state_dict(separated.decoder.adapted(weights))
        weights, info = separated.state_dict(), replace(info, preset=replace(info.preset, model=config))
    mixed = {"shares": list(shares), "steps": [each.training.get("steps") for _, each in loaded]}
    save_checkpoint(out, weights, replace(info, training={**info.training, "averaged": mixed}))


def options(model: Recognizer) -> list[object]:
    """Of each part, defaults included: weights of equal shapes mean something else with e.g. other heads."""
    return [getattr(getattr(model, part), "config", getattr(model.config, part)) for part in PARTS]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--shares", type=float, nargs="+", required=True)
    parser.add_argument("--rank", type=int, default=0, help="of the refinement's kernels; 0: as they are")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    try:
        average(chosen.checkpoints, chosen.shares, chosen.rank, chosen.out)
    except (HmerError, ValueError) as error:
        sys.exit(f"average.py: {error}")


if __name__ == "__main__":
    main()
