"""Training state as safetensors and JSON: any nesting of plain values and tensors, and nothing that runs code."""

import json
from pathlib import Path
from typing import Any

from lightning.fabric.plugins import CheckpointIO
from safetensors.torch import load_file, save_file
from torch import Tensor

from hmerctl.runtime.files import replaced_folder

TENSORS, TREE = "state.safetensors", "state.json"


def flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Plain data with every tensor moved to ``tensors`` and named in its place.

    Raises:
        TypeError: a value that is neither plain data nor a tensor.
    """
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy each: tensors that share memory cannot be saved side by side.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"items": [[flatten(k, tensors), flatten(v, tensors)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [flatten(v, tensors) for v in value]}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} cannot be saved in a training state")


def unflatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of ``flatten``."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "items":
        return {unflatten(k, tensors): unflatten(v, tensors) for k, v in content}
    values = [unflatten(v, tensors) for v in content]
    return tuple(values) if kind == "tuple" else values


class TensorFilesIO(CheckpointIO):
    """Lightning's checkpoints as a folder of safetensors and JSON, replaced as a whole, never unpickled."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to the folder ``path``."""
        tensors: dict[str, Tensor] = {}
        tree = flatten(checkpoint, tensors)
        with replaced_folder(Path(path)) as folder:
            save_file(tensors, folder / TENSORS)
            (folder / TREE).write_text(json.dumps(tree))

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read the folder ``path``; tensors on the CPU."""
        tree = json.loads((Path(path) / TREE).read_text())
        return unflatten(tree, load_file(Path(path) / TENSORS))

    def remove_checkpoint(self, path: Any) -> None:
        """Delete both files of the folder ``path``, and the folder."""
        folder = Path(path)
        for name in (TENSORS, TREE):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
