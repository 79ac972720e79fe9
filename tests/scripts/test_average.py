"""The mean of checkpoints: weights, shares, and refinement kernels of a rank."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from script_files import load_script
from tiny import tiny_source

from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

average = load_script("average")


def checkpoint(path: Path, refinement: int = 4, seed: int = 0) -> Path:
    source = tiny_source(refinement=refinement, seed=seed)
    save_checkpoint(path, source.model.state_dict(), source.info)
    return path


def test_weights_are_added_by_their_shares(tmp_path: Path) -> None:
    a, b = checkpoint(tmp_path / "a"), checkpoint(tmp_path / "b", seed=1)
    average.average([a, b], [0.25, 0.75], 0, tmp_path / "mean")
    first, second = (load_checkpoint(path)[0].state_dict() for path in (a, b))
    mean, info = load_checkpoint(tmp_path / "mean")
    for name, value in mean.state_dict().items():
        if value.is_floating_point():
            assert torch.allclose(value, 0.25 * first[name] + 0.75 * second[name], atol=1e-6), name
    assert info.training["averaged"]["shares"] == [0.25, 0.75]


def test_kernels_of_a_sufficient_rank_read_alike(tmp_path: Path) -> None:
    a = checkpoint(tmp_path / "a")
    average.average([a], [1.0], 20, tmp_path / "separated")
    whole, separated = load_checkpoint(a)[0], load_checkpoint(tmp_path / "separated")[0]
    assert separated.decoder.config.refinement_rank == 20  # type: ignore[union-attr]
    raster, size = torch.rand(1, 1, 32, 64), torch.tensor([[32, 64]], dtype=torch.int32)
    tokens = torch.randint(3, 6, (1, 5))
    assert torch.allclose(whole(raster, size, tokens), separated(raster, size, tokens), atol=1e-4)


def test_other_models_and_wrong_shares_are_refused(tmp_path: Path) -> None:
    a, b = checkpoint(tmp_path / "a"), checkpoint(tmp_path / "b", refinement=3)
    with pytest.raises(CheckpointError, match=r"another model than .*b"):
        average.average([a, b], [0.5, 0.5], 0, tmp_path / "mean")
    with pytest.raises(ValueError, match="2 checkpoints need as many shares"):
        average.average([a, b], [0.5], 0, tmp_path / "mean")


def test_equal_shapes_do_not_make_one_model(tmp_path: Path) -> None:
    a, source = checkpoint(tmp_path / "a"), tiny_source(refinement=4)
    swapped = Vocabulary(source.info.vocabulary.tokens[::-1])
    save_checkpoint(tmp_path / "b", source.model.state_dict(), replace(source.info, vocabulary=swapped))
    with pytest.raises(CheckpointError, match="another model"):
        average.average([a, tmp_path / "b"], [0.5, 0.5], 0, tmp_path / "mean")


def test_what_is_no_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    a = checkpoint(runs / "a")
    with pytest.raises(CheckpointError, match="runs: exists and is no checkpoint"):
        average.average([a], [1.0], 0, runs)
    assert load_checkpoint(a)


@pytest.mark.parametrize(("rank", "before"), [(-1, 0), (4, 4)])
def test_a_rank_needs_whole_kernels(rank: int, before: int, tmp_path: Path) -> None:
    a = checkpoint(tmp_path / "a")
    if before:
        average.average([a], [1.0], before, a)
    with pytest.raises(ValueError, match="rank"):
        average.average([a], [1.0], rank, tmp_path / "out")


def test_an_option_at_its_default_is_the_same_model(tmp_path: Path) -> None:
    a, source = checkpoint(tmp_path / "a"), tiny_source(refinement=4)
    model = source.info.preset.model
    said = replace(model, decoder={**model.decoder, "refinement_rank": 0})
    save_checkpoint(
        tmp_path / "b",
        source.model.state_dict(),
        replace(source.info, preset=replace(source.info.preset, model=said)),
    )
    average.average([a, tmp_path / "b"], [0.5, 0.5], 0, tmp_path / "mean")
    assert load_checkpoint(tmp_path / "mean")
