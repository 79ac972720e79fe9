"""Faults put into an exported bundle on purpose, each of which the parity ladder must catch.

Every one is an error that a converter, a packager or their user could make; the checksums are made right again, so
that only the ladder can see it. ``scripts/mutations.py`` writes what caught them into docs/export.md, and
``tests/export/test_ladder.py`` holds that table to the truth.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hmerctl.export.parity.graphs import PORTABLE, check_onnx_bundle
from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import TOLERANCES, Finding, failed
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import VOCABULARY_METADATA, Bundle, list_files, open_bundle, write_manifest
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.runtime.manifest import Manifest
from hmerctl.runtime.vocabulary import Vocabulary

Graphs = Callable[[onnx.ModelProto, onnx.ModelProto], None]
"""Changes encoder and step in place."""

Package = Callable[[Path, Manifest], Manifest]
"""Changes other files of a bundle's folder in place, and returns the manifest that goes with them."""


@dataclass(frozen=True)
class Mutation:
    """A fault.

    Attributes:
        what: one line for the table; unique.
        change: puts it in.
        levels: that must catch it; others may too.
        package: whether ``change`` is a ``Package``, not ``Graphs``.
    """

    what: str
    change: Callable
    levels: frozenset[str]
    package: bool = False


def mutated_bundle(bundle: Bundle, folder: Path, mutation: Mutation) -> Bundle:
    """A copy of a bundle with a fault, checksums right again, in a folder that is not there yet."""
    shutil.copytree(bundle.path, folder)
    # A few small buckets suffice for what is wrong everywhere.
    manifest = bundle.manifest.model_copy(update={"buckets": bundle.manifest.buckets[:4]})
    if mutation.package:
        manifest = mutation.change(folder, manifest)
    else:
        edit_graphs(folder, mutation.change)
    write_manifest(folder, manifest.model_copy(update={"files": list_files(folder)}))
    return open_bundle(folder)


def edit_graphs(folder: Path, change: Graphs) -> None:
    """Read the two graphs of a folder, change them, write them back."""
    graphs = [onnx.load(folder / f"{role}.onnx") for role in ("encoder", "step")]
    change(*graphs)
    for role, graph in zip(("encoder", "step"), graphs, strict=True):
        onnx.save(graph, folder / f"{role}.onnx")


PRECISIONS = ("fp32", "fp16", "int8")
"""Whose bounds the faults are held to. The graphs are float32 in each: a fault is one of the graph or the package,
and what rounding adds to it could only make it larger."""


def findings_of(bundle: Bundle, source: Source, precision: str = "fp32") -> list[Finding]:
    """The whole ladder on a bundle of the target ``onnx``, by the bounds of a precision."""
    evidence = Evidence(source.model, pictures_of_samples(bundle), labelled=True)
    return check_onnx_bundle(bundle, PORTABLE) + climb(bundle, OnnxEngine(bundle, 1), evidence, TOLERANCES[precision])


def row(mutation: Mutation, findings: Mapping[str, Sequence[Finding]]) -> str:
    """The line of a mutation in the table: the levels that failed by the bounds of each precision, and the first
    check that did by those of fp32."""
    faults = {p: sorted(failed(findings[p]), key=lambda f: f.level) for p in PRECISIONS}
    levels = {p: ", ".join(dict.fromkeys(f.level for f in faults[p])) or "**none**" for p in PRECISIONS}
    first = faults["fp32"][0].check if faults["fp32"] else ""
    return f"| {mutation.what} | {levels['fp32']} | {first} | {levels['fp16']} | {levels['int8']} |"


def initializer(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name.endswith(name))


def edit(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    tensor = initializer(model, name)
    changed = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed, changed.dtype), tensor.name))


def change_one_weight(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    def change(values: np.ndarray) -> np.ndarray:
        values.reshape(-1)[0] += 0.01
        return values

    edit(step, "layers.1.inner.weight", change)


def flip_largest_weight(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """What a flipped sign bit does."""

    def change(values: np.ndarray) -> np.ndarray:
        values.reshape(-1)[np.abs(values).argmax()] *= -1
        return values

    edit(step, "layers.1.inner.weight", change)


def change_one_kernel(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    def change(values: np.ndarray) -> np.ndarray:
        values.reshape(-1)[0] += 0.01
        return values

    edit(encoder, "to_middle.conv.weight", change)


def wrong_position_table(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    edit(encoder, "position.rows", lambda table: np.roll(table, 1, axis=1))


def wrong_last_position(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """Only steps from the 200th on are wrong: short sequences never see it."""

    def change(table: np.ndarray) -> np.ndarray:
        table[200:] = table[199]
        return table

    edit(step, "decoder.positions", change)


def swap_state_outputs(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    swap_names(step, "next_self_keys_0", "next_self_values_0")


def swap_spent_attention(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The two halves of the spent attention exchanged: own attention, and that of the layer below."""
    pairs = (node for node in step.graph.node if node.op_type == "Concat" and len(node.input) == 2)
    halves = next(node.input for node in pairs if all("softmax" in name for name in node.input))
    halves[0], halves[1] = halves[1], halves[0]


def swap_names(model: onnx.ModelProto, first: str, second: str) -> None:
    other = {first: second, second: first}
    for node in model.graph.node:
        node.output[:] = [other.get(name, name) for name in node.output]
        node.input[:] = [other.get(name, name) for name in node.input]


def ignore_memory_mask(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The padding's scores are not lowered."""
    edit_scalar(encoder, -1e4, 0.0)


def edit_scalar(model: onnx.ModelProto, old: float, new: float) -> None:
    scalars = [tensor for tensor in model.graph.initializer if list(tensor.dims) in ([], [1])]
    found = [tensor for tensor in scalars if numpy_helper.to_array(tensor).item() == np.float32(old)]
    assert found
    for tensor in found:
        tensor.CopyFrom(numpy_helper.from_array(np.full(tuple(tensor.dims), new, np.float32), tensor.name))


def ignore_unwritten_cache(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """Cache rows that are still zero take part in the self-attention."""
    edit_scalar(step, -1e4, 0.0)


def off_by_one_position(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The step reads the next row of its position table."""
    edit(step, "decoder.positions", lambda table: np.roll(table, -1, axis=0))


def off_by_one_cache(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The newest row of the cache is taken for unwritten."""
    node = next(node for node in step.graph.node if node.op_type == "GreaterOrEqual")
    shifted = "position_minus_one"
    step.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int32), "one"))
    index = list(step.graph.node).index(node)
    step.graph.node.insert(index, helper.make_node("Sub", ["position", "one"], [shifted]))
    next(n for n in step.graph.node if n.op_type == "GreaterOrEqual").input[1] = shifted


def inverted_polarity(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The encoder sees paper as ink."""
    encoder.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "white"))
    for node in encoder.graph.node:
        node.input[:] = ["inverted" if name == "raster" and node.op_type == "Conv" else name for name in node.input]
    encoder.graph.node.insert(0, helper.make_node("Sub", ["white", "raster"], ["inverted"]))


def computed_position_table(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """A sine in the graph, even one that changes nothing."""
    output = next(node for node in step.graph.node if "log_probs" in node.output)
    output.output[0] = "plain_log_probs"
    step.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "zero"))
    step.graph.node.append(helper.make_node("Sin", ["zero"], ["nothing"]))
    step.graph.node.append(helper.make_node("Add", ["plain_log_probs", "nothing"], ["log_probs"]))


def other_vocabulary_order(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    edit(step, "decoder.output.bias", lambda bias: np.roll(bias, 1))


def altered_metadata(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    next(entry for entry in step.metadata_props if entry.key == "stride").value = "16"


def append(model: onnx.ModelProto, constants: dict[str, list[int]], *nodes: onnx.NodeProto) -> None:
    """Nodes after all others, with int64 constants that they read."""
    for name, values in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    model.graph.node.extend(nodes)


def transposed_attention(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The attention that the host sees is written column by column: right tokens, boxes in wrong places."""
    swap_names(step, "attention", "attention_by_rows")
    append(
        step,
        {"map_axes": [0, 1], "map_from": [2], "map_to": [4], "all": [-1], "flat": [0, -1]},
        helper.make_node("Shape", ["memory_mask"], ["mask_shape"]),
        helper.make_node("Slice", ["mask_shape", "map_from", "map_to"], ["map_shape"]),
        helper.make_node("Concat", ["all", "map_shape"], ["beams_and_map"], axis=0),
        helper.make_node("Reshape", ["attention_by_rows", "beams_and_map"], ["attention_map"]),
        helper.make_node("Transpose", ["attention_map"], ["attention_turned"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["attention_turned", "flat"], ["attention"]),
    )


def stale_cache_row(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """The step gives back what stood in the cache, not the new row."""
    swap_names(step, "next_self_keys_1", "new_keys")
    append(
        step,
        {"time_axis": [2]},
        helper.make_node("Gather", ["self_keys_1", "position"], ["old_row"], axis=2),
        helper.make_node("Squeeze", ["old_row", "time_axis"], ["next_self_keys_1"]),
    )


def one_cache_for_all_beams(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    """Every beam remembers what the first one wrote: a single beam never shows it."""
    swap_names(step, "next_self_values_1", "own_values")
    append(
        step,
        {"first_beam": [0]},
        helper.make_node("Gather", ["own_values", "first_beam"], ["first_values"], axis=0),
        helper.make_node("Shape", ["own_values"], ["values_shape"]),
        helper.make_node("Expand", ["first_values", "values_shape"], ["next_self_values_1"]),
    )


def infinite_mask(encoder: onnx.ModelProto, step: onnx.ModelProto) -> None:
    edit_scalar(encoder, -1e4, -np.inf)


def swapped_tokens(folder: Path, manifest: Manifest) -> Manifest:
    """The list of tokens is in another order than in training, and manifest and graphs agree on the wrong one."""
    tokens = json.loads((folder / manifest.vocabulary.file).read_text())
    first = tokens.index(manifest.samples[0].tokens[0])
    second = (first + 1) % len(tokens)
    tokens[first], tokens[second] = tokens[second], tokens[first]
    wrong = Vocabulary(tuple(tokens))
    (folder / manifest.vocabulary.file).write_text(wrong.to_json())

    def stamp(*graphs: onnx.ModelProto) -> None:
        for graph in graphs:
            next(e for e in graph.metadata_props if e.key == VOCABULARY_METADATA).value = wrong.sha256

    edit_graphs(folder, stamp)
    return manifest.model_copy(update={"vocabulary": manifest.vocabulary.model_copy(update={"sha256": wrong.sha256})})


def narrower_margin(folder: Path, manifest: Manifest) -> Manifest:
    """The device draws with a smaller border than training did."""
    raster = manifest.preprocessing
    return manifest.model_copy(update={"preprocessing": replace(raster, margin=raster.margin - 2)})


def thicker_pen(folder: Path, manifest: Manifest) -> Manifest:
    raster = manifest.preprocessing
    return manifest.model_copy(update={"preprocessing": replace(raster, pen_width=raster.pen_width + 1)})


def fewer_steps(folder: Path, manifest: Manifest) -> Manifest:
    decoder = manifest.decoder
    return manifest.model_copy(update={"decoder": decoder.model_copy(update={"max_steps": 100})})


L0, L2, L5 = (frozenset({level}) for level in ("L0", "L2", "L5"))

MUTATIONS = (
    Mutation("one weight of the step changed by 0.01", change_one_weight, L2),
    Mutation("sign of the largest weight of a matrix of the step flipped", flip_largest_weight, L2),
    Mutation("one kernel element of the encoder changed by 0.01", change_one_kernel, L2),
    Mutation("position table of the picture shifted by a cell", wrong_position_table, L2),
    Mutation("position table of the step shifted by one: every step reads the next row", off_by_one_position, L2),
    Mutation("position table of the step wrong from row 200 on", wrong_last_position, L2),
    Mutation("two state tensors swapped: keys and values of a cache", swap_state_outputs, L2),
    Mutation("the two halves of the spent attention swapped", swap_spent_attention, L2),
    Mutation("padding of the picture not masked", ignore_memory_mask, L2),
    Mutation("cache rows that are not written yet not masked", ignore_unwritten_cache, L2),
    Mutation("newest cache row masked", off_by_one_cache, L2),
    Mutation("old cache row given back in place of the new one", stale_cache_row, L2),
    Mutation("all beams get the cache of the first", one_cache_for_all_beams, L2),
    Mutation("ink and paper inverted", inverted_polarity, frozenset({"L2", "L3", "L5"})),
    Mutation("output classes shifted by one", other_vocabulary_order, L2),
    Mutation("attention written column by column", transposed_attention, L2),
    Mutation("two tokens of the vocabulary swapped, all checksums in agreement", swapped_tokens, L5, package=True),
    Mutation("raster drawn with a margin narrower by 2 pixels", narrower_margin, L5, package=True),
    Mutation("raster drawn with a pen wider by 1 pixel", thicker_pen, L5, package=True),
    Mutation("masks of minus infinity", infinite_mask, L0),
    Mutation("a position table computed in the graph (Sin)", computed_position_table, L0),
    Mutation("metadata of the graph that disagree with the manifest", altered_metadata, L0),
    Mutation("fewer steps in the manifest than the graph was made for", fewer_steps, L0, package=True),
)
