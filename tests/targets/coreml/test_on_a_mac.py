"""What is asked of Core ML on a Mac, against a stand-in for coremltools' bindings: nothing of this ran on a Mac."""

from pathlib import Path
from types import SimpleNamespace as Fake
from typing import Any

import numpy as np
import pytest

from hmerctl.runtime.manifest import Component, TensorSpec
from hmerctl.targets.coreml import check, engine, placement
from hmerctl.targets.coreml.neural_engine import Estimate
from hmerctl.targets.coreml.tools import CoreMlError


class MLCPUComputeDevice:
    pass


class MLNeuralEngineComputeDevice:
    pass


COMPONENT = Component(
    name="encoder-64x128",
    role="encoder",
    format="mlpackage",
    file="encoder.mlpackage",
    function="encoder_64x128",
    bucket=(64, 128),
    inputs=(
        TensorSpec(name="raster", dtype="float16", shape=(1, 1, 64, 128)),
        TensorSpec(name="size", dtype="int32", shape=(1, 2)),
    ),
    outputs=(TensorSpec(name="keys_0", dtype="float16", shape=(1, 2)),),
)


@pytest.fixture
def bundle(tmp_path: Path) -> Any:
    (tmp_path / "encoder.mlpackage").mkdir()
    (tmp_path / "encoder.mlpackage" / "Manifest.json").write_text("{}")
    return Fake(name="b.hmer", file=lambda name: tmp_path / name, components=lambda role: [COMPONENT])


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Calls that reach the stand-in."""
    calls: dict[str, Any] = {}
    usages = {"const": None, "gather": MLCPUComputeDevice(), "conv": MLNeuralEngineComputeDevice()}

    class Model:
        def __init__(self, path: str, **options: Any) -> None:
            calls.update(path=path, **options)

        def predict(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            calls["dtypes"] = {name: str(x.dtype) for name, x in inputs.items()}
            return {"keys_0": np.ones((1, 2), np.float16)}

    plan = Fake(
        model_structure=Fake(
            program=Fake(
                functions={"encoder_64x128": Fake(block=Fake(operations=["const", "gather", "conv", "conv"]))}
            )
        ),
        get_compute_device_usage_for_mlprogram_operation=lambda op: (
            None if usages[op] is None else Fake(preferred_compute_device=usages[op])
        ),
    )
    tools = Fake(
        __version__="9.0",
        ComputeUnit=Fake(ALL="all"),
        utils=Fake(compile_model=lambda path: path + "c"),
        models=Fake(MLModel=Model, compute_plan=Fake(MLComputePlan=Fake(load_from_path=lambda path, **_: plan))),
    )
    monkeypatch.setattr(engine.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(engine.platform, "mac_ver", lambda: ("15.5", ("", "", ""), ""))
    for module in (engine, placement):
        monkeypatch.setattr(module, "coremltools", lambda: tools)
    return calls


def test_the_engine_is_core_ml_and_says_so(mac: dict[str, Any], bundle: Any) -> None:
    core = engine.CoreMlEngine(bundle)
    assert core.name == "Core ML on macOS 15.5 (coremltools 9.0)"
    memory = core.encode(np.zeros((1, 1, 64, 128), np.float32), np.array([[60, 99]], np.int32))
    assert memory["keys_0"].tolist() == [[1, 1]]
    assert mac["function_name"] == "encoder_64x128"
    # Never the bundle's own files: coremltools writes to the packages that it opens.
    assert Path(mac["path"]).name == "encoder.mlpackage" and Path(mac["path"]) != bundle.file("encoder.mlpackage")
    assert mac["dtypes"] == {"raster": "float16", "size": "int32"}


def test_the_compute_plan_is_counted_by_unit(mac: dict[str, Any]) -> None:
    found = placement.placement(Path("encoder.mlpackage"), "encoder_64x128")
    assert found == {"CPU": 1, "Neural Engine": 2}
    with pytest.raises(CoreMlError, match="gives no compute plan"):
        placement.placement(Path("encoder.mlpackage"), "another")


def test_placement_on_a_mac_is_a_finding_and_not_an_estimate(mac: dict[str, Any], bundle: Any) -> None:
    finding = check._placement(bundle, COMPONENT, Estimate(3, 2, 10, 10, {}))
    assert finding.status == "passed" and "1 on CPU, 2 on Neural Engine" in finding.detail
