"""Fixtures that many tests share: the CROHME folder, and a tiny bundle built by hand.

The tiny bundle's recogniser reads "x^{2}+y" into any ink, and its state matters to the result.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hmerctl.runtime.buckets import BUCKETS
from hmerctl.runtime.bundle import VOCABULARY_METADATA, Bundle, list_files, open_bundle, write_manifest
from hmerctl.runtime.manifest import (
    Component,
    DecoderInfo,
    Manifest,
    ModelInfo,
    Sample,
    TargetInfo,
    TensorSpec,
    VocabularyInfo,
)
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.state import StateSpec
from hmerctl.runtime.vocabulary import EOS, SOS, Vocabulary

if TYPE_CHECKING:
    from hmerctl.export.source import Source
    from hmerctl.runtime.ink import Ink


@pytest.fixture(scope="session")
def crohme() -> Path:
    """The folder with the CROHME archives and captions; tests that need it skip where HMERCTL_CROHME is unset."""
    folder = os.environ.get("HMERCTL_CROHME")
    if not folder:
        pytest.skip("HMERCTL_CROHME is not set: it must name the folder with the CROHME archives and captions")
    return Path(folder)


READS = ("x", "^", "{", "2", "}", "+", "y")
VOCABULARY = Vocabulary((*READS, "\\frac"))
WIDTH = len(VOCABULARY)
STRIDE = 8
MAX_STEPS = 100

BIGRAM = np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32)
for _last, _next in zip((SOS, *VOCABULARY.encode(READS)), (*VOCABULARY.encode(READS), EOS), strict=True):
    BIGRAM[_last, _next] = 9
HISTORY = 0.01
"""Every token written before makes itself more likely by this logit."""


def _constant(name: str, value: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(value, name)


def _value(spec: TensorSpec) -> onnx.ValueInfoProto:
    dtypes = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
    return helper.make_tensor_value_info(spec.name, dtypes[spec.dtype], spec.shape)


def _spec(name: str, *shape: int | str, dtype: Any = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


ENCODER_IO = (
    (_spec("raster", "batch", 1, "height", "width"), _spec("size", "batch", 2, dtype="int32")),
    (_spec("ink", "batch", "cells"), _spec("memory_mask", "batch", 1, "rows", "columns")),
)
STATE = (
    StateSpec("history", ("beam", "time", WIDTH), "append"),
    StateSpec("spent", ("beam", "rows", "columns"), "replace"),
)
STEP_IO = (
    (
        _spec("token", "beam", dtype="int32"),
        _spec("position", 1, dtype="int32"),
        _spec("ink", 1, "cells"),
        _spec("memory_mask", 1, 1, "rows", "columns"),
        _spec("history", "beam", "time", WIDTH),
        _spec("spent", "beam", "rows", "columns"),
    ),
    (
        _spec("log_probs", "beam", WIDTH),
        _spec("attention", "beam", "cells"),
        _spec("next_history", "beam", WIDTH),
        _spec("next_spent", "beam", "rows", "columns"),
    ),
)


def _save(path: Path, nodes: list[Any], io: Any, constants: dict[str, np.ndarray], vocabulary: str) -> None:
    tensors = [_constant(name, value) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", [_value(s) for s in io[0]], [_value(s) for s in io[1]], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {VOCABULARY_METADATA: vocabulary})
    onnx.checker.check_model(model)
    onnx.save(model, path)


def save_encoder(path: Path, vocabulary: str = VOCABULARY.sha256) -> None:
    """Mean ink of every cell."""
    pool: dict[str, Any] = {"kernel_shape": [STRIDE, STRIDE], "strides": [STRIDE, STRIDE]}
    nodes = [
        helper.make_node("AveragePool", ["raster"], ["pooled"], **pool),
        helper.make_node("Reshape", ["pooled", "flat"], ["ink"]),
        helper.make_node("Mul", ["pooled", "zero"], ["masked"]),
        helper.make_node("Cast", ["size"], ["size_float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["size_float"], ["size_sum"], keepdims=1),
        helper.make_node("Mul", ["size_sum", "zero"], ["size_zero"]),
        helper.make_node("Add", ["masked", "size_zero"], ["memory_mask"]),
    ]
    constants = {"flat": np.array([0, -1]), "zero": np.zeros(1, np.float32)}
    _save(path, nodes, ENCODER_IO, constants, vocabulary)


def save_step(path: Path, vocabulary: str = VOCABULARY.sha256) -> None:
    """log_probs from the last token and the history; attention to the ink that has not been attended to yet."""
    nodes = [
        helper.make_node("Gather", ["bigram", "token"], ["from_last"]),
        helper.make_node("ReduceSum", ["history", "axis_1"], ["counts"], keepdims=0),
        helper.make_node("Mul", ["counts", "weight"], ["from_history"]),
        helper.make_node("Add", ["from_last", "from_history"], ["logits"]),
        helper.make_node("LogSoftmax", ["logits"], ["log_probs"], axis=1),
        helper.make_node("Gather", ["eye", "token"], ["next_history"]),
        helper.make_node("Reshape", ["spent", "flat"], ["spent_flat"]),
        helper.make_node("Sub", ["ink", "spent_flat"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["attention"], axis=1),
        helper.make_node("Shape", ["spent"], ["spent_shape"]),
        helper.make_node("Reshape", ["attention", "spent_shape"], ["attention_map"]),
        helper.make_node("Add", ["spent", "attention_map"], ["spent_more"]),
        helper.make_node("Squeeze", ["memory_mask", "axis_1"], ["mask_map"]),
        helper.make_node("Add", ["spent_more", "mask_map"], ["next_spent"]),
    ]
    constants = {
        "bigram": BIGRAM,
        "eye": np.eye(WIDTH, dtype=np.float32),
        "weight": np.array(HISTORY, np.float32),
        "axis_1": np.array([1]),
        "flat": np.array([0, -1]),
    }
    _save(path, nodes, STEP_IO, constants, vocabulary)


INK = {"strokes": [[[0, 0], [30, 30]], [[30, 0], [0, 30]]]}


def build_bundle(folder: Path, **changes: Any) -> Path:
    """A complete bundle; ``changes`` replace fields of the manifest."""
    folder.mkdir()
    (folder / "samples").mkdir()
    (folder / "vocab.json").write_text(VOCABULARY.to_json())
    (folder / "samples/x.json").write_text(json.dumps(INK))
    (folder / "LICENSE").write_text("do as you like")
    save_encoder(folder / "encoder.onnx")
    save_step(folder / "step.onnx")
    fields: dict[str, Any] = {
        "model": ModelInfo(
            name="tiny", parameters=BIGRAM.size, licence="CC0-1.0", licence_file="LICENSE", training_data="none"
        ),
        "target": TargetInfo(name="onnx", precision="fp32", opset=17),
        "preprocessing": RasterSpec(),
        "buckets": BUCKETS,
        "vocabulary": VocabularyInfo(sha256=VOCABULARY.sha256, size=WIDTH),
        "decoder": DecoderInfo(memory=("ink", "memory_mask"), state=STATE, max_steps=MAX_STEPS, stride=STRIDE),
        "components": (
            Component(
                name="encoder",
                role="encoder",
                format="onnx",
                file="encoder.onnx",
                inputs=ENCODER_IO[0],
                outputs=ENCODER_IO[1],
            ),
            Component(
                name="step", role="step", format="onnx", file="step.onnx", inputs=STEP_IO[0], outputs=STEP_IO[1]
            ),
        ),
        "samples": (Sample(file="samples/x.json", tokens=READS, latex="x^{2}+y"),),
        "files": list_files(folder),
    }
    write_manifest(folder, Manifest(**{**fields, **changes}))
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A fresh tiny bundle that a test may damage."""
    return build_bundle(tmp_path / "tiny-onnx-fp32.hmer")


@pytest.fixture(scope="session")
def shared_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny bundle that no test may change."""
    return build_bundle(tmp_path_factory.mktemp("bundles") / "tiny-onnx-fp32.hmer")


@pytest.fixture(scope="session")
def source() -> "Source":
    """A tiny model with attention refinement."""
    from tiny import tiny_source

    return tiny_source()


@pytest.fixture(scope="session")
def inks() -> "list[Ink]":
    """Three inks, short to long."""
    from tiny import tiny_ink

    return [tiny_ink(1, 2), tiny_ink(2, 4), tiny_ink(3, 7)]


@pytest.fixture(scope="session")
def bundle(source: "Source", inks: "list[Ink]", tmp_path_factory: pytest.TempPathFactory) -> "Bundle":
    """The tiny model exported to the target ``onnx``."""
    from hmerctl.targets.base import find
    from hmerctl.targets.build import export_bundle, make_plan

    target = find("onnx")
    path = tmp_path_factory.mktemp("bundle") / "tiny-onnx-fp32.hmer"
    export_bundle(source, target, make_plan(source, target), path, inks)
    return open_bundle(path)
