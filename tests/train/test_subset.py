"""A part of a dataset: drawn at random, growing with its count, of expressions that are small and long enough."""

import pytest
from synthetic import make_dataset

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.subset import Wanted, choose


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ExpressionDataset:
    return ExpressionDataset(make_dataset(tmp_path_factory.mktemp("data") / "source", 40))


def test_a_smaller_choice_is_part_of_a_larger_one(dataset: ExpressionDataset) -> None:
    few, many = choose(dataset, 5), choose(dataset, 20)
    assert (len(few), len(many)) == (5, 20)
    assert set(few) < set(many)
    assert many == sorted(set(many))


def test_another_seed_chooses_others(dataset: ExpressionDataset) -> None:
    assert choose(dataset, 5, seed=1) != choose(dataset, 5) == choose(dataset, 5, seed=0)


def test_rasters_fit_and_labels_are_long_enough(dataset: ExpressionDataset) -> None:
    sizes = [dataset[i].drawn().pixels.shape for i in range(len(dataset))]
    limit = sorted(h for h, _ in sizes)[20], sorted(w for _, w in sizes)[20]
    fitting = {
        i
        for i, (height, width) in enumerate(sizes)
        if height <= limit[0] and width <= limit[1] and len(dataset.labels[i]) >= 2
    }
    assert fitting
    assert set(choose(dataset, len(fitting), Wanted(limit, min_tokens=2))) == fitting
    with pytest.raises(DataError, match=f"only {len(fitting)} of 40 expressions fit"):
        choose(dataset, len(fitting) + 1, Wanted(limit, min_tokens=2))


def test_the_raster_contract_decides_what_fits(dataset: ExpressionDataset) -> None:
    size = dataset[0].drawn().pixels.shape
    assert Wanted(size).at(dataset, 0)
    assert not Wanted(size, spec=RasterSpec(symbol_extent=96, stroke_extent=96)).at(dataset, 0)
