"""Saved packages: several functions in one, metadata, and identifiers that do not change from build to build."""

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmerctl.targets.coreml.convert import quiet
from hmerctl.targets.coreml.tools import CoreMlError, coremltools, one_line


def save(model: Any, path: Path, metadata: Mapping[str, str]) -> None:
    """Save one converted function as a package of its own."""
    model.save(str(path))
    _finish(path, metadata)


def merge(parts: Mapping[str, Path], path: Path, metadata: Mapping[str, str]) -> None:
    """Make one package of several functions, which share the weights that they have in common (iOS 18).

    Args:
        parts: packages of one function each, by the name that the function gets; the first is the default.
        path: of the new package.
        metadata: strings to leave in it.

    Raises:
        CoreMlError: coremltools cannot merge them, or the package cannot be written.
    """
    ct = coremltools()
    descriptor = ct.utils.MultiFunctionDescriptor()
    for name, part in parts.items():
        descriptor.add_function(str(part), src_function_name="main", target_function_name=name)
    descriptor.default_function_name = next(iter(parts))
    shutil.rmtree(path, ignore_errors=True)
    try:
        with quiet():
            ct.utils.save_multifunction(descriptor, str(path))
    except shutil.Error as error:  # of copying: a list of (from, to, why)
        why = str(error.args[0][0][2]).partition(":")[0]
        raise CoreMlError(f"{path.name}: cannot be written ({why}); make room or name another folder") from error
    except Exception as error:
        raise CoreMlError(
            f"{path.name}: coremltools cannot merge {len(parts)} functions: {one_line(error)}"
        ) from error
    _finish(path, metadata)


def _finish(path: Path, metadata: Mapping[str, str]) -> None:
    """Write the metadata, and item identifiers that follow from the items' names instead of chance."""
    from coremltools.proto import Model_pb2

    model = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    spec = Model_pb2.Model()
    spec.ParseFromString(model.read_bytes())
    spec.description.metadata.userDefined.update(metadata)
    model.write_bytes(spec.SerializeToString(deterministic=True))

    listing = path / "Manifest.json"
    manifest = json.loads(listing.read_text())
    items, root = manifest["itemInfoEntries"], manifest["rootModelIdentifier"]
    names = {key: str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])).upper() for key, item in items.items()}
    manifest["itemInfoEntries"] = {
        names[key]: item for key, item in sorted(items.items(), key=lambda e: e[1]["path"])
    }
    manifest["rootModelIdentifier"] = names[root]
    listing.write_text(json.dumps(manifest, indent=4) + "\n")
