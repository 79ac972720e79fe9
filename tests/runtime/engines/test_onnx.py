"""The ONNX engine against the tiny graphs' formula written out in numpy."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from hmerctl.runtime.bundle import VOCABULARY_METADATA, list_files, open_bundle, write_manifest
from hmerctl.runtime.engines.onnx import FIRST_ROWS, OnnxEngine
from hmerctl.runtime.errors import BundleError, EngineError


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Reference:
    """What a session must answer: every hypothesis carries its own whole history."""

    def __init__(self, step: Path, ink: np.ndarray) -> None:
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(step).graph.initializer}
        self.bigram, self.weight, self.ink = tensors["bigram"], tensors["weight"], ink
        self.histories: list[list[int]] = [[]]
        self.spent = [np.zeros_like(ink)]

    def step(self, tokens: np.ndarray, parents: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        if parents is not None:
            self.histories = [self.histories[p] for p in parents]
            self.spent = [self.spent[p] for p in parents]
        counts = np.array([np.bincount(h, minlength=len(self.bigram)) for h in self.histories])
        attention = softmax(np.array([self.ink - s for s in self.spent]))
        log_probs = np.log(softmax(self.bigram[tokens] + self.weight * counts))
        self.histories = [[*h, t] for h, t in zip(self.histories, tokens.tolist(), strict=True)]
        self.spent = [s + a for s, a in zip(self.spent, attention, strict=True)]
        return log_probs, attention


def inputs(height: int = 64, width: int = 128) -> tuple[np.ndarray, np.ndarray]:
    raster = np.random.default_rng(0).random((1, 1, height, width), np.float32)
    return raster, np.array([[height, width]], np.int32)


def test_steps_follow_their_parents_past_the_growth_of_the_cache(shared_tiny: Path) -> None:
    engine = OnnxEngine(open_bundle(shared_tiny))
    memory = engine.encode(*inputs())
    assert memory["memory_mask"].shape == (1, 1, 8, 16)
    session, reference = engine.start(memory, 4), Reference(shared_tiny / "step.onnx", memory["ink"][0])
    generator = np.random.default_rng(3)
    count, tokens, parents = 1, np.array([1], np.int32), None
    for _ in range(FIRST_ROWS + 20):
        for mine, right in zip(session.step(tokens, parents), reference.step(tokens, parents), strict=True):
            np.testing.assert_allclose(mine, right, atol=1e-5)
        # Beams appear, die and cross; sometimes all stay where they are.
        parents = generator.integers(0, count, generator.integers(1, 5))
        if generator.random() < 0.3:
            parents = np.arange(count)
        count = len(parents)
        tokens = generator.integers(3, 11, count).astype(np.int32)


def test_parents_may_be_left_out_when_rows_stay(shared_tiny: Path) -> None:
    engine = OnnxEngine(open_bundle(shared_tiny))
    memory = engine.encode(*inputs())
    session, reference = engine.start(memory, 1), Reference(shared_tiny / "step.onnx", memory["ink"][0])
    for token in (1, 3, 4, 3):
        tokens = np.array([token], np.int32)
        np.testing.assert_allclose(session.step(tokens)[0], reference.step(tokens, None)[0], atol=1e-5)


def test_sessions_do_not_disturb_each_other(shared_tiny: Path) -> None:
    engine = OnnxEngine(open_bundle(shared_tiny))
    memory = engine.encode(*inputs())
    first, second = engine.start(memory, 1), engine.start(memory, 1)
    one, two = np.array([1], np.int32), np.array([5], np.int32)
    first.step(one)
    second.step(two)
    second.step(two)
    alone = engine.start(memory, 1)
    alone.step(one)
    assert np.array_equal(first.step(two)[0], alone.step(two)[0])


def test_it_says_what_runs(shared_tiny: Path) -> None:
    engine = OnnxEngine(open_bundle(shared_tiny), encoder_threads=2)
    assert engine.name.startswith("onnxruntime ") and engine.name.endswith(" CPU")
    assert engine.threads == {"encoder": 2, "step": 1}


def relist(folder: Path) -> None:
    value = json.loads((folder / "manifest.json").read_text())
    value["files"] = [entry.model_dump() for entry in list_files(folder)]
    (folder / "manifest.json").write_text(json.dumps(value))


@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_a_graph_for_another_vocabulary_is_refused(tiny: Path, digest: str) -> None:
    model = onnx.load(tiny / "step.onnx")
    onnx.helper.set_model_props(model, {VOCABULARY_METADATA: digest} if digest else {})
    onnx.save(model, tiny / "step.onnx")
    relist(tiny)
    with pytest.raises(BundleError, match=r"step\.onnx was made for another vocabulary"):
        OnnxEngine(open_bundle(tiny))


def test_what_is_no_graph_is_refused(tiny: Path) -> None:
    (tiny / "step.onnx").write_bytes(b"not a graph")
    relist(tiny)
    with pytest.raises(EngineError, match=r"step\.onnx cannot be loaded"):
        OnnxEngine(open_bundle(tiny))


def test_external_data_is_refused(tiny: Path) -> None:
    model = onnx.load(tiny / "step.onnx")
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "/etc/passwd")
    model.graph.initializer[0].ClearField("raw_data")
    (tiny / "step.onnx").write_bytes(model.SerializeToString())
    relist(tiny)
    with pytest.raises(EngineError, match=r"step\.onnx keeps weights in another file"):
        OnnxEngine(open_bundle(tiny))


def test_graphs_that_do_not_take_what_the_manifest_says(tiny: Path) -> None:
    file = tiny / "manifest.json"
    manifest = json.loads(file.read_text())
    for component in manifest["components"]:
        component["role"] = {"encoder": "step", "step": "encoder"}[component["role"]]
    file.write_text(json.dumps(manifest))
    with pytest.raises(EngineError, match=r"step.onnx is no encoder of this bundle: it takes no raster"):
        OnnxEngine(open_bundle(tiny))


@pytest.mark.parametrize("lowest", ["1.99", "2", "999.0.1"])
def test_a_bundle_for_a_newer_onnxruntime_is_refused_with_both_versions(tiny: Path, lowest: str) -> None:
    manifest = open_bundle(tiny).manifest
    target = manifest.target.model_copy(update={"minimum_runtime": {"onnxruntime": lowest}})
    write_manifest(tiny, manifest.model_copy(update={"target": target}))
    with pytest.raises(BundleError, match=rf"needs onnxruntime {lowest} or later, here is .*; upgrade onnxruntime$"):
        OnnxEngine(open_bundle(tiny))


def changed(folder: Path, **decoder: object) -> None:
    """Other values in the manifest's ``decoder``."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["decoder"] |= decoder
    file.write_text(json.dumps(manifest))


def test_graphs_and_a_manifest_that_do_not_belong_together(tiny: Path) -> None:
    state = json.loads((tiny / "manifest.json").read_text())["decoder"]["state"]
    changed(tiny, state=[])
    with pytest.raises(EngineError, match=r"step\.onnx is no step of this bundle: it takes .*, which nothing gives"):
        OnnxEngine(open_bundle(tiny))
    changed(tiny, state=state, memory=["other"])
    with pytest.raises(EngineError, match=r"encoder\.onnx is no encoder of this bundle: it gives no other"):
        OnnxEngine(open_bundle(tiny))


def test_cells_of_another_size_than_the_manifest_says(tiny: Path) -> None:
    changed(tiny, stride=json.loads((tiny / "manifest.json").read_text())["decoder"]["stride"] // 2)
    with pytest.raises(EngineError, match=r"cells for 64 x 128 pixels, which are not of \d+ pixels"):
        OnnxEngine(open_bundle(tiny)).encode(*inputs())


def test_a_graph_that_fails_is_told_in_a_line(tiny: Path) -> None:
    engine = OnnxEngine(open_bundle(tiny))
    raster, size = inputs()
    with pytest.raises(EngineError, match="encoder fails"):
        engine.encode(raster, size[0])
    session = engine.start(engine.encode(raster, size), 1)
    with pytest.raises(EngineError, match="decoder step fails"):
        session.step(np.array([[1]], np.int32))
