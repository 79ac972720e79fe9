"""The parity ladder on a tiny random model: green as exported, and each of a list of mutations caught, by level."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from hmerctl.export.parity.graphs import PORTABLE, check_onnx, check_onnx_bundle
from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import TOLERANCES, Finding, failed
from hmerctl.export.parity.rewrites import check_rewrites
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle, list_files, open_bundle, write_manifest
from hmerctl.runtime.engines.onnx import OnnxEngine


def findings_of(bundle: Bundle, source: Source) -> list[Finding]:
    evidence = Evidence(source.model, pictures_of_samples(bundle), labelled=True)
    return check_onnx_bundle(bundle, PORTABLE) + climb(bundle, OnnxEngine(bundle, 1), evidence, TOLERANCES["fp32"])


def test_an_exported_bundle_passes_every_level(bundle: Bundle, source: Source) -> None:
    findings = findings_of(bundle, source)
    assert failed(findings) == []
    assert {f.level for f in findings if f.status == "passed"} == {"L0", "L1", "L2", "L3", "L4", "L5"}
    assert [f.check for f in findings if f.status == "not-run"] == []


def test_without_a_checkpoint_the_comparisons_are_not_run_and_do_not_pass(bundle: Bundle) -> None:
    findings = climb(bundle, OnnxEngine(bundle, 1), Evidence(None), TOLERANCES["fp32"])
    assert {f.level: f.status for f in findings} == {
        "L1": "not-run",
        "L2": "not-run",
        "L3": "not-run",
        "L4": "not-run",
        "L5": "passed",
    }


def test_a_stand_in_says_so(bundle: Bundle) -> None:
    findings = climb(bundle, OnnxEngine(bundle, 1), Evidence(None), TOLERANCES["fp32"], stand_in=True)
    assert {f.status for f in findings} == {"not-run", "stand-in"}


# Mutations of the exported graphs: each is an error that a converter, or its user, could make.


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


MUTATIONS: list[tuple[Callable[[onnx.ModelProto, onnx.ModelProto], None], set[str]]] = [
    (change_one_weight, {"L2"}),
    (change_one_kernel, {"L2"}),
    (wrong_position_table, {"L2"}),
    (wrong_last_position, {"L2"}),
    (swap_state_outputs, {"L2"}),
    (swap_spent_attention, {"L2"}),
    (ignore_memory_mask, {"L2"}),
    (ignore_unwritten_cache, {"L2"}),
    (off_by_one_position, {"L2"}),
    (off_by_one_cache, {"L2"}),
    (inverted_polarity, {"L2", "L3", "L5"}),
    (other_vocabulary_order, {"L2"}),
    (computed_position_table, {"L0"}),
    (altered_metadata, {"L0"}),
]
"""What is done to the graphs, and the levels that must catch it (others may too)."""


@pytest.mark.parametrize(("mutate", "levels"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS])
def test_every_mutation_is_caught(
    mutate: Callable[[onnx.ModelProto, onnx.ModelProto], None],
    levels: set[str],
    bundle: Bundle,
    source: Source,
    tmp_path: Path,
) -> None:
    mutated = mutated_bundle(bundle, tmp_path, mutate)
    caught = {finding.level for finding in failed(findings_of(mutated, source))}
    assert levels <= caught, f"caught only by {caught}"


def mutated_bundle(
    bundle: Bundle, folder: Path, mutate: Callable[[onnx.ModelProto, onnx.ModelProto], None]
) -> Bundle:
    """A copy of a bundle with changed graphs, whose checksums are right again."""
    graphs = [onnx.load(bundle.file(f"{role}.onnx")) for role in ("encoder", "step")]
    mutate(*graphs)
    for path in bundle.path.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(bundle.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    for role, graph in zip(("encoder", "step"), graphs, strict=True):
        onnx.save(graph, folder / f"{role}.onnx")
    # A few small buckets suffice for what is wrong everywhere.
    small = bundle.manifest.model_copy(update={"files": list_files(folder), "buckets": bundle.manifest.buckets[:4]})
    write_manifest(folder, small)
    return open_bundle(folder)


def test_a_training_form_that_differs_from_the_step_is_caught_by_l1(
    bundle: Bundle, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, pictures = source.model.decoder, pictures_of_samples(bundle)
    right = decoder.step
    monkeypatch.setattr(decoder, "step", lambda memory, token, at, state: right(memory, token, at + 1, state))
    caught = failed(check_rewrites(source.model, pictures, bundle.buckets()))
    assert [finding.check for finding in caught] == ["decoder step equals teacher forcing"]


def test_padding_that_leaks_is_caught_by_l1(bundle: Bundle, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = source.model.encoder
    monkeypatch.setattr(encoder.mask4, "forward", lambda size, rows, columns: torch.ones(len(size), 1, rows, columns))
    caught = failed(check_rewrites(source.model, pictures_of_samples(bundle), bundle.buckets()))
    assert [finding.check for finding in caught] == ["padding changes nothing"]


def test_a_graph_that_differs_from_its_manifest_entry_is_named(bundle: Bundle) -> None:
    component = bundle.components("step")[0]
    model = onnx.load(bundle.file("step.onnx"))
    wrong = component.inputs[0].model_copy(update={"dtype": "float32"})
    component = component.model_copy(update={"inputs": (wrong, *component.inputs[1:])})
    [fault] = failed(check_onnx(component, model, PORTABLE, 17, {}))
    assert fault.check == "step: inputs as in the manifest"
    assert fault.detail == "token is int32 ['beam'], the manifest says float32 ['beam']"


def test_an_operator_that_the_target_lacks_is_named_and_counted(bundle: Bundle) -> None:
    model = onnx.load(bundle.file("encoder.onnx"))
    [fault] = failed(check_onnx(bundle.components("encoder")[0], model, PORTABLE - {"LayerNormalization"}, 17, {}))
    assert (fault.check, fault.detail) == ("encoder: operators", "2 x LayerNormalization")


def test_a_constant_beyond_fp16_is_named(bundle: Bundle) -> None:
    model = onnx.load(bundle.file("step.onnx"))
    edit_scalar(model, -1e4, -np.inf)
    faults = failed(check_onnx(bundle.components("step")[0], model, PORTABLE, 17, {}))
    assert [fault.check for fault in faults] == ["step: constants finite and within fp16"]


def test_a_looser_bound_is_a_choice_of_the_precision(bundle: Bundle, source: Source, tmp_path: Path) -> None:
    mutated = mutated_bundle(bundle, tmp_path, change_one_weight)
    evidence = Evidence(source.model, pictures_of_samples(mutated))
    loose = replace(TOLERANCES["int8"], snr_db=10.0, top1=0.5, sequences=0.0)
    assert failed(climb(mutated, OnnxEngine(mutated, 1), evidence, loose)) == []
