"""Target ``coreml`` from the plan to the parity ladder, with a small random model."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typed import as_a

from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import failed
from hmerctl.export.reference import TorchEngine
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import Bucket, pad
from hmerctl.runtime.bundle import Bundle, list_files, open_bundle, write_manifest
from hmerctl.runtime.errors import EngineError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.targets.base import Target, find
from hmerctl.targets.build import export_bundle, make_plan
from hmerctl.targets.coreml import target as target_module
from hmerctl.targets.coreml import tools
from hmerctl.targets.coreml.engine import CoreMlEngine
from hmerctl.targets.coreml.target import CoreMl, CoreMlModels
from hmerctl.train.checkpoint import CheckpointInfo
from hmerctl.train.config import Preset
from hmerctl.train.models.recognizer import ModelConfig, Recognizer
from hmerctl.train.models.transformer import TransformerDecoder

VOCABULARY = Vocabulary(tuple(r"+ - 0 1 2 3 = a b x y ^ _ { } \frac \alpha".split()))
ENCODER = {"name": "edge", "stem": 4, "middle": 8, "middle_blocks": 1, "top": 8, "top_blocks": 1, "channels": 16}
DECODER = {"name": "transformer", "layers": 2, "heads": 2, "width": 16, "inner": 24, "refinement": 4}


class OneBucket(CoreMl):
    """The target with one small bucket."""

    buckets = (Bucket(64, 128),)


class OneBucketModels(CoreMlModels):
    """The same for iOS 16."""

    buckets = (Bucket(64, 128),)
    beams = (5,)


def lively(model: nn.Module) -> nn.Module:
    """Random weights in which every part matters: none is zero, batch norms have statistics."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(as_a(Tensor, module.running_mean), std=0.2)
            nn.init.uniform_(as_a(Tensor, module.running_var), 0.5, 2.0)
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def output_of(model: Recognizer) -> nn.Linear:
    """The projection to log-probabilities."""
    return as_a(TransformerDecoder, model.decoder).output


def make_source(**parts: dict) -> Source:
    torch.manual_seed(0)
    config = ModelConfig(**{"encoder": ENCODER, "decoder": DECODER, **parts})
    info = CheckpointInfo(Preset("tiny", model=config), VOCABULARY, {"data": "nothing"})
    model = Recognizer(config, VOCABULARY)
    lively(model)
    with torch.no_grad():
        output_of(model).weight.mul_(6)  # clear winners, as in a trained model
    return Source(model, info)


def scribble(seed: int) -> Ink:
    rng = np.random.default_rng(seed)
    turn = np.linspace(0, 5, 20)
    strokes = [
        np.stack([9 * np.cos(turn * rng.uniform(0.5, 1)) + 24 * i, 9 * np.sin(turn * rng.uniform(0.5, 1))], 1)
        for i in range(3)
    ]
    return Ink(tuple(strokes), id=f"scribble-{seed}")


@pytest.fixture(scope="module")
def source() -> Source:
    return make_source()


@pytest.fixture(scope="module")
def bundles(source: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """The small model in two precisions, and for iOS 16."""
    folder, made = tmp_path_factory.mktemp("bundles"), {}
    for key, target, precision in (
        ("fp32", OneBucket(), "fp32"),
        ("fp16", OneBucket(), "fp16"),
        ("ios16", OneBucketModels(), "int8"),
    ):
        path = folder / f"{key}.hmer"
        export_bundle(source, target, make_plan(source, target, precision), path, [scribble(1), scribble(2)])
        made[key] = open_bundle(path)
    return made


def claimed(target: Target, levels: set[str]) -> dict[str, str]:
    """What the target says of itself, as a report has it; docs/targets/README.md shows it."""
    return {level: "stand-in" if level in target.stand_ins else "passed" for level in levels}


def ladder(bundle: Bundle, source: Source) -> list:
    target = find(bundle.manifest.target.name)
    evidence = Evidence(source.model, pictures_of_samples(bundle), False)
    tolerance = target.tolerance(bundle.manifest.target.precision)
    return target.check(bundle) + climb(bundle, target.load(bundle), evidence, tolerance, target.stand_in())


def test_the_targets_are_found() -> None:
    assert isinstance(find("coreml"), CoreMl) and isinstance(find("coreml-ios16"), CoreMlModels)


def test_a_plan_says_what_is_built_without_the_tools(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "coremltools", lambda: pytest.fail("a plan needs no coremltools"))
    plan = make_plan(source, find("coreml"))
    assert plan.precision == "fp16" and plan.minimum_runtime == {"iOS": "18", "macOS": "15"} and not plan.refusal
    assert {component.file for component in plan.components} == {"encoder.mlpackage", "step.mlpackage"}
    assert len(plan.components) == 8 + 8 * 2 and len(plan.buckets) == 8
    last = plan.components[-1]
    assert last.name == "step-256x1280-beams5"
    assert last.sizes == {"beam": 5, "rows": 32, "columns": 160, "time": 208}


def test_ios_16_has_a_package_for_each_graph(source: Source) -> None:
    plan = make_plan(source, find("coreml-ios16"))
    assert plan.minimum_runtime["iOS"] == "16" and len({component.file for component in plan.components}) == 24


def test_a_stride_that_does_not_fit_is_refused(source: Source) -> None:
    class Odd(CoreMl):
        buckets = (Bucket(60, 128),)

    assert "stride 8 does not divide" in (make_plan(source, Odd()).refusal or "")


@pytest.mark.parametrize("key", ["fp32", "fp16", "ios16"])
def test_the_parity_ladder_is_green_on_the_evaluator(key: str, bundles: dict[str, Bundle], source: Source) -> None:
    findings = ladder(bundles[key], source)
    assert not failed(findings), failed(findings)
    levels = {finding.level: finding.status for finding in findings if finding.status != "not-run"}
    assert levels == claimed(find("coreml"), set(levels)) and set(levels) == {"L0", "L1", "L2", "L3", "L5"}
    assert all("not Core ML" in CoreMlEngine(bundle).name for bundle in bundles.values())


def test_large_tensors_are_float16_and_carried_sums_float32(bundles: dict[str, Bundle]) -> None:
    step = bundles["fp16"].components("step")[0]
    dtypes = {spec.name: spec.dtype for spec in (*step.inputs, *step.outputs)}
    assert dtypes["keys_0"] == dtypes["self_keys_0"] == dtypes["next_self_keys_0"] == "float16"
    assert dtypes["spent_1"] == dtypes["next_spent_1"] == dtypes["log_probs"] == "float32"
    assert dtypes["token"] == dtypes["position"] == "int32"
    assert (step.function, step.beams, step.bucket) == ("step_64x128_beams1", 1, (64, 128))


def test_the_session_pads_beams_and_follows_parents(bundles: dict[str, Bundle], source: Source) -> None:
    pixels = np.zeros((40, 90), np.uint8)
    pixels[10:30:3, 10:80] = 255
    ours, theirs = CoreMlEngine(bundles["fp32"]), TorchEngine(source.model)
    memory = ours.encode(*pad(pixels, Bucket(64, 128)))
    found, expected = (engine.start(memory, 3) for engine in (ours, theirs))
    parents = None
    for tokens in ([1], [3, 4, 5], [6, 7, 8], [9, 9, 9]):
        ids = np.array(tokens, np.int32)
        for got, want in zip(found.step(ids, parents), expected.step(ids, parents), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)
        parents = np.array([2, 0, 0]) if len(tokens) == 3 else np.array([0, 0, 0])
    with pytest.raises(EngineError, match="8 beams"):
        ours.start(memory, 8)


def altered(bundle: Bundle, folder: Path, change: Callable[[Path], None], **fields: object) -> Bundle:
    """A copy of a bundle with a change that its manifest knows of, as a wrong converter would make it."""
    shutil.copytree(bundle.path, folder)
    change(folder)
    write_manifest(folder, bundle.manifest.model_copy(update={"files": list_files(folder), **fields}))
    return open_bundle(folder)


def test_a_changed_weight_fails_level_2(bundles: dict[str, Bundle], source: Source, tmp_path: Path) -> None:
    def change(folder: Path) -> None:
        file = folder / "step.mlpackage" / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
        weight = output_of(source.model).weight.detach().numpy()
        data = bytearray(file.read_bytes())
        place = data.find(weight.tobytes())
        assert place > 0
        data[place + 3] ^= 0x80
        file.write_bytes(data)

    findings = ladder(altered(bundles["fp32"], tmp_path / "b.hmer", change), source)
    assert {finding.level for finding in failed(findings)} >= {"L2"}


def test_a_weight_scaled_to_overflow_is_named_by_level_2(
    bundles: dict[str, Bundle], source: Source, tmp_path: Path
) -> None:
    def change(folder: Path) -> None:
        file = folder / "step.mlpackage" / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
        weight = output_of(source.model).weight.detach().half().numpy()
        data = file.read_bytes()
        assert data.count(weight.tobytes()) == 1
        file.write_bytes(data.replace(weight.tobytes(), np.copysign(np.float16(6e4), weight).tobytes()))

    findings = ladder(altered(bundles["fp16"], tmp_path / "b.hmer", change), source)
    (finding,) = [f for f in findings if f.check == "nothing leaves the range of float16"]
    assert finding.status == "failed" and "step.mlpackage:step_64x128_beams1: linear" in finding.detail


def test_swapped_functions_fail_level_0(bundles: dict[str, Bundle], source: Source, tmp_path: Path) -> None:
    components = [
        replace_component(c, function="step_64x128_beams5") if c.beams == 1 else c
        for c in bundles["fp32"].manifest.components
    ]
    bundle = altered(bundles["fp32"], tmp_path / "b.hmer", lambda _: None, components=tuple(components))
    faults = failed(find("coreml").check(bundle))
    assert any("token is int32 [5], the manifest says int32 [1]" in fault.detail for fault in faults)


def replace_component(component, **fields):
    return component.model_copy(update=fields)


def test_foreign_metadata_and_unknown_operations_fail_level_0(
    bundles: dict[str, Bundle], tmp_path: Path, edit: Callable
) -> None:
    def change(folder: Path) -> None:
        edit(
            folder / "step.mlpackage",
            lambda spec: spec.description.metadata.userDefined.update({"vocabulary_sha256": "of another model"}),
        )

        def swap(spec) -> None:
            body = spec.mlProgram.functions["encoder_64x128"]
            for operation in body.block_specializations[body.opset].operations:
                if operation.type == "relu":
                    operation.type = "relu6"

        edit(folder / "encoder.mlpackage", swap)

    faults = failed(find("coreml").check(altered(bundles["fp32"], tmp_path / "b.hmer", change)))
    assert any("relu6" in fault.detail for fault in faults)
    assert any("vocabulary_sha256 is 'of another model'" in fault.detail for fault in faults)


def test_placement_is_an_estimate_and_no_pass(bundles: dict[str, Bundle]) -> None:
    findings = [f for f in find("coreml").check(bundles["fp16"]) if "placement" in f.check]
    assert [finding.status for finding in findings] == ["not-run", "not-run"]
    assert "100.0 % of" in findings[0].detail and "logical_and: no engine takes it" in findings[0].detail


def test_doctor_rows_say_how_to_get_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = CoreMl().requirements()
    assert {row.needed_for for row in rows} == {"build", "parity", "run"}
    assert all(row.how for row in rows)
    monkeypatch.setattr(target_module, "package", lambda name, purpose, how: replace(rows[0], found=None))
    assert CoreMl().requirements()[0].found is None


def test_tolerances_exist_for_every_precision() -> None:
    for precision in CoreMl.precisions:
        tolerance = CoreMl().tolerance(precision)
        assert (tolerance.max_abs or 0) > 0 or (tolerance.snr_db or -math.inf) >= 15
