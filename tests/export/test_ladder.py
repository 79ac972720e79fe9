"""The parity ladder on a tiny random model: green as exported, and each of a list of mutations caught, by level."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from faults import MUTATIONS, Mutation, edit_scalar, findings_of, mutated_bundle

from hmerctl.export.parity.graphs import PORTABLE, check_onnx
from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import TOLERANCES, failed
from hmerctl.export.parity.rewrites import check_rewrites
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.targets.base import find


def test_an_exported_bundle_passes_every_level(bundle: Bundle, source: Source) -> None:
    findings = findings_of(bundle, source)
    assert failed(findings) == []
    assert {f.level for f in findings if f.status == "passed"} == {"L0", "L1", "L2", "L3", "L4", "L5"}
    assert [f.check for f in findings if f.status == "not-run"] == []
    assert not find("onnx").stand_ins and not find("onnx").stand_in()


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


def table() -> dict[str, tuple[str, str]]:
    """The failed levels and the first failed check by fault, as docs/export.md has them."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    text = page.partition("<!-- mutations: by scripts/mutations.py -->\n")[2].partition("<!-- end -->")[0]
    rows = (line.strip("| ").split(" | ") for line in text.splitlines()[2:])
    return {what: (levels, check) for what, levels, check, *_ in rows}


def test_the_table_in_the_docs_names_every_fault() -> None:
    assert list(table()) == [mutation.what for mutation in MUTATIONS]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.change.__name__ for mutation in MUTATIONS])
def test_every_mutation_is_caught(mutation: Mutation, bundle: Bundle, source: Source, tmp_path: Path) -> None:
    """And by what the table says. The levels above the first may differ by rounding from machine to machine."""
    findings = findings_of(mutated_bundle(bundle, tmp_path / "mutated.hmer", mutation), source)
    faults = sorted(failed(findings), key=lambda f: f.level)
    caught = {fault.level for fault in faults}
    assert mutation.levels <= caught, f"caught only by {caught}"
    levels, check = table()[mutation.what]
    assert (levels[:2], check) == (faults[0].level, faults[0].check), "regenerate: python scripts/mutations.py"


TOO_SMALL = {"change_one_weight": "less than what rounding does to all weights"}
"""Faults that the bounds of int8 cannot see, and why: docs/export.md."""


@pytest.mark.parametrize("mutation", MUTATIONS[::3], ids=[mutation.change.__name__ for mutation in MUTATIONS[::3]])
def test_the_bounds_of_int8_catch_all_but_small_faults(
    mutation: Mutation, bundle: Bundle, source: Source, tmp_path: Path
) -> None:
    """Every third, for time; the script that writes the table tries them all."""
    caught = failed(findings_of(mutated_bundle(bundle, tmp_path / "mutated.hmer", mutation), source, "int8"))
    assert bool(caught) != (mutation.change.__name__ in TOO_SMALL)


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
    mutated = mutated_bundle(bundle, tmp_path / "mutated.hmer", MUTATIONS[0])
    evidence = Evidence(source.model, pictures_of_samples(mutated))
    loose = replace(TOLERANCES["int8"], snr_db=10.0, top1=0.5, sequences=0.0)
    assert failed(climb(mutated, OnnxEngine(mutated, 1), evidence, loose)) == []
