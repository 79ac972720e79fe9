"""What a converted graph says of itself against what the manifest says of it, whatever the graph's format."""

from collections.abc import Mapping, Sequence

from hmerctl.export.metadata import graph_metadata
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.manifest import Component, TensorSpec


def expected_metadata(bundle: Bundle, component: Component) -> dict[str, str]:
    """Entries that the metadata of a bundle's graph must have."""
    manifest = bundle.manifest
    return graph_metadata(
        component.role, manifest.model.name, manifest.decoder, bundle.vocabulary, manifest.preprocessing
    )


def metadata_fault(found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Which entries differ; empty if none does."""
    wrong = [key for key, value in expected.items() if found.get(key) != value]
    return ", ".join(f"{key} is {found.get(key, 'missing')!r}, should be {expected[key]!r}" for key in wrong)


def ports_fault(found: Sequence[TensorSpec], specs: Sequence[TensorSpec]) -> str:
    """How inputs (or outputs) differ in name, order, type or shape; empty if they do not."""
    if [spec.name for spec in specs] != [spec.name for spec in found]:
        return f"names are {', '.join(spec.name for spec in found)}"
    return "; ".join(
        f"{here.name} is {here.dtype} {list(here.shape)}, the manifest says {spec.dtype} {list(spec.shape)}"
        for here, spec in zip(found, specs, strict=True)
        if (here.dtype, here.shape) != (spec.dtype, spec.shape)
    )
