"""What stands in the metadata of every ONNX graph, so that a graph can be used, and refused, without its manifest."""

import json
from typing import Any, Literal

from hmerctl.export.graphs import Graph
from hmerctl.runtime.bundle import VOCABULARY_METADATA
from hmerctl.runtime.manifest import Component, DecoderInfo
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import EOS, PAD, SOS, Vocabulary
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.models.recognizer import Recognizer


def decoder_info(model: Recognizer, memory: tuple[str, ...]) -> DecoderInfo:
    """How a host drives the step graph of a model.

    Args:
        memory: names of the encoder's outputs, in order.
    """
    return DecoderInfo(
        memory=memory,
        state=model.decoder.state_spec(),
        max_steps=MAX_STEPS,
        stride=model.encoder.stride,
        pad=PAD,
        sos=SOS,
        eos=EOS,
    )


def graph_metadata(
    role: Literal["encoder", "step"], name: str, decoder: DecoderInfo, vocabulary: Vocabulary, raster: RasterSpec
) -> dict[str, str]:
    """Strings for ``metadata_props``; structured values are JSON.

    Args:
        name: of the model, e.g. ``edge``.
    """
    return {
        "model": name,
        "role": role,
        VOCABULARY_METADATA: vocabulary.sha256,
        "vocabulary_size": str(len(vocabulary)),
        "raster_version": str(raster.version),
        "stride": str(decoder.stride),
        "max_steps": str(decoder.max_steps),
        "pad": str(decoder.pad),
        "sos": str(decoder.sos),
        "eos": str(decoder.eos),
        "memory": json.dumps(decoder.memory),
        "state": json.dumps([[s.name, list(s.shape), s.update] for s in decoder.state]),
    }


def component(graph: Graph, name: str, format: str, file: str, **options: Any) -> Component:
    """A manifest entry for a converted graph whose axes are those of ``graph``.

    Args:
        options: further fields of ``Component``, or others in place of the graph's ``inputs`` and ``outputs``.
    """
    fields: dict[str, Any] = {"inputs": graph.inputs, "outputs": graph.outputs, **options}
    return Component(name=name, role=graph.role, format=format, file=file, **fields)
