"""Finding targets, and what every target offers."""

import dataclasses
import importlib.metadata
from pathlib import Path

import pytest

from hmerctl.export.source import Source
from hmerctl.runtime.errors import HmerError
from hmerctl.targets.base import Requirement, Target, TargetError, find, names, require
from hmerctl.train.models.recognizer import Recognizer


def test_installed_targets_are_found_by_name() -> None:
    assert "onnx" in names()
    assert find("onnx").name == "onnx"


@pytest.mark.parametrize("name", names())
def test_every_target_describes_itself(name: str) -> None:
    target = find(name)
    assert target.name == name
    assert target.summary
    assert target.choose_precision(None) == target.precisions[0]
    assert all(target.tolerance(precision) for precision in target.precisions)
    assert all(requirement.how for requirement in target.requirements())


def test_an_unknown_target_and_precision_are_refused_with_the_choice() -> None:
    with pytest.raises(TargetError, match=r"unknown target 'abacus'; installed are .*onnx"):
        find("abacus")
    with pytest.raises(TargetError, match="target onnx has no precision 'int3'; choose fp32"):
        find("onnx").choose_precision("int3")


def installed(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """As if a package with an entry point for the target ``mine`` were installed."""
    entry = importlib.metadata.EntryPoint("mine", value, "hmerctl.targets")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [entry])


def test_a_target_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "hmerctl.targets.onnx:Onnx")
    assert isinstance(find("mine"), Target)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError"),
        ("pathlib:Path", "is not a hmerctl.targets.base"),
    ],
)
def test_a_broken_package_is_named(value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, value)
    with pytest.raises(TargetError, match=message):
        find("mine")


def test_what_is_missing_is_named_with_how_to_get_it() -> None:
    needs = [Requirement("hammer", "build", "2.0", "buy one"), Requirement("anvil", "build", None, "buy an anvil")]
    require(needs, "run")
    with pytest.raises(HmerError, match="anvil is needed to build: buy an anvil"):
        require(needs, "build")


def test_bundles_are_named_after_model_target_and_precision(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from hmerctl.targets.build import bundle_path

    source, plan = (
        SimpleNamespace(info=SimpleNamespace(name="edge")),
        SimpleNamespace(target="onnx", precision="fp32"),
    )
    assert bundle_path(tmp_path, source, plan) == tmp_path / "edge-onnx-fp32.hmer"  # type: ignore[arg-type]
    assert bundle_path(tmp_path / "x.hmer", source, plan) == tmp_path / "x.hmer"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["onnx", "jetson-trt"])
def test_a_context_that_serves_one_bucket_only_is_refused_with_the_reason(name: str, source: Source) -> None:
    """One encoder graph serves every bucket there; a scan unrolled over the diagonals of one map cannot."""
    target = find(name)
    config = dataclasses.replace(source.model.config, context={"name": "md-gru", "hidden": 2})
    unrolled = dataclasses.replace(source, model=Recognizer(config, source.model.vocabulary).eval())
    assert target.plan(source, target.precisions[0]).refusal is None
    refusal = target.plan(unrolled, target.precisions[0]).refusal
    assert refusal and "'md-gru'" in refusal and "unrolled" in refusal
