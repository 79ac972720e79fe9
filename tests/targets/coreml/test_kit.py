"""The Swift kit reads what bundles hold. (It is not compiled here: no Swift toolchain.)"""

import dataclasses
import re
from importlib.resources import files

import pytest

from hmerctl.runtime.manifest import Component, DecoderInfo, Manifest
from hmerctl.runtime.state import StateSpec
from hmerctl.runtime.vocabulary import EOS, PAD, SOS, SPECIAL_TOKENS

KIT = files("hmerctl.targets.coreml") / "kit"


def fields(struct: str) -> set[str]:
    """Names of the stored properties of a Swift struct, as JSON spells them."""
    text = (KIT / "BundleManifest.swift").read_text(encoding="utf-8")
    begin = re.search(rf"struct {struct}: Decodable \{{", text)
    assert begin
    indent = re.search(rf"^( *)struct {struct}:", text, re.M)
    assert indent
    body = text[begin.end() : text.index(f"\n{indent[1]}}}", begin.end())]
    names = re.findall(rf"^{indent[1]}    let (\w+):", body, re.M)
    return {re.sub("([A-Z])", lambda m: "_" + m[1].lower(), name) for name in names}


@pytest.mark.parametrize(
    ("struct", "known"),
    [
        ("BundleManifest", set(Manifest.model_fields)),
        ("Component", set(Component.model_fields)),
        ("DecoderInfo", set(DecoderInfo.model_fields)),
        ("State", {field.name for field in dataclasses.fields(StateSpec)}),
    ],
)
def test_the_kit_reads_fields_that_the_manifest_has(struct: str, known: set[str]) -> None:
    assert fields(struct) and fields(struct) <= known


def test_the_kit_names_the_graphs_tensors_and_special_ids() -> None:
    text = (KIT / "FormulaRecognizer.swift").read_text(encoding="utf-8")
    for name in ("raster", "size", "token", "position", "log_probs"):
        assert f'"{name}"' in text
    assert '"next_\\(state.name)"' in text
    assert (PAD, SOS, EOS, len(SPECIAL_TOKENS)) == (0, 1, 2, 3)
    assert "vocabulary[$0 - 3]" in text and "dropFirst(2)" in text


def test_the_kit_says_that_it_is_untested() -> None:
    for file in KIT.iterdir():
        assert "Not compiled" in file.read_text(encoding="utf-8")
