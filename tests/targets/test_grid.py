"""The grid: every combination of encoder, position encoding, context and decoder, for every target.

A combination is taken or refused by its plan with the reason and its source, here for all of them. That what is
taken converts and says what PyTorch says is shown part by part, at random weights and small sizes, because the
encoder graph is a chain of encoder, position encoding and context, and the step graph is the decoder (with relative
positions): each part on its own, encoders with decoders in pairs; for ``onnx`` in tests/export/test_parts.py,
``jetson-trt`` in tests/targets/jetson/test_parts.py, ``coreml`` in tests/targets/coreml/test_parts.py.
"""

import itertools
from types import SimpleNamespace
from typing import Any

import parts as support
import pytest
from coreml_grid import GRID as COREML

from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.targets.base import find
from hmerctl.train.models.parts import names
from hmerctl.train.models.recognizer import ModelConfig, Recognizer

ENCODERS = {"edge": support.EDGE, "densenet": support.DENSENET}
DECODERS = {"transformer": support.TRANSFORMER, "attention-gru": support.GRU}
CONTEXTS = {name: {"name": name, **options} for name, options in support.context_options().items()}
MODELS = list(itertools.product(ENCODERS, names("position"), CONTEXTS, DECODERS))
SCANS = {"md-rnn", "md-gru", "md-lstm"}


def source(encoder: str, position: str, context: str, decoder: str) -> Any:
    config = ModelConfig(ENCODERS[encoder], {"name": position}, CONTEXTS[context], DECODERS[decoder])
    return SimpleNamespace(model=Recognizer(config, Vocabulary(("a", "b"))).eval(), rasters=[])


def test_the_grid_holds_every_registered_part() -> None:
    assert set(ENCODERS) == set(names("encoder")) and set(DECODERS) == set(names("decoder"))
    assert len(MODELS) == len(ENCODERS) * len(names("position")) * len(names("context")) * len(DECODERS)


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_combination_is_taken_or_refused_with_its_reason_and_source(context: str) -> None:
    for model in (model for model in MODELS if model[2] == context):
        for name in ("onnx", "jetson-trt", "coreml", "coreml-ios16"):
            target = find(name)
            refusal = target.plan(source(*model), target.precisions[0]).refusal
            if context in SCANS and not name.startswith("coreml"):
                assert refusal and repr(context) in refusal and "docs/operators.md" in refusal, (name, model)
            else:
                assert refusal is None, (name, model)


def test_every_part_is_compared_for_every_target() -> None:
    """The tests that compare cover the registry and the pairs that share a graph."""
    configs = support.MODELS.values()
    assert set(support.position_options()) == set(names("position"))
    pairs = {(config.encoder["name"], config.decoder["name"]) for config in configs}
    assert pairs == set(itertools.product(ENCODERS, DECODERS))
    relative = {config.decoder["name"] for config in configs if config.position["name"] == "relative"}
    assert relative == set(DECODERS)
    assert {given["position"]["name"] for given, _ in COREML if "position" in given} == set(names("position"))
    assert {given["context"]["name"] for given, _ in COREML if "context" in given} == set(names("context"))
