"""The bundle folder: graphs, vocabulary, sample inks with what they must give, licence, manifest; all or nothing."""

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hmerctl.export.graphs import take_apart
from hmerctl.export.metadata import decoder_info
from hmerctl.export.reference import TorchEngine
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import Padding
from hmerctl.runtime.bundle import MANIFEST, list_files, write_manifest
from hmerctl.runtime.errors import BundleError
from hmerctl.runtime.files import replaced_folder
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.latex import detokenise
from hmerctl.runtime.manifest import (
    Component,
    DecodingDefaults,
    Manifest,
    ModelInfo,
    Sample,
    TargetInfo,
    VocabularyInfo,
)
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.runtime.reading import read
from hmerctl.runtime.recognizer import decode_options
from hmerctl.runtime.strokes import format_strokes, read_strokes

LICENCE_FILE = "LICENSE"
_TOOLS = ("torch", "onnx", "onnxscript", "onnxruntime", "coremltools", "numpy")


def write_bundle(
    path: Path,
    source: Source,
    target: TargetInfo,
    build: Callable[[Path], tuple[Component, ...]],
    padding: Padding,
    samples: Sequence[Ink],
) -> Manifest:
    """Write a bundle; one that is already at ``path`` is replaced as a whole.

    Args:
        path: the bundle's folder.
        source: what is exported.
        target: what the bundle is made for.
        build: writes the graphs into the folder it is given and describes them.
        padding: raster sizes that the encoder takes.
        samples: inks to put in, with the LaTeX that PyTorch decodes from them.

    Raises:
        BundleError: ``path`` holds something that is not a bundle.
    """
    if path.exists() and any(path.iterdir() if path.is_dir() else [path]) and not (path / MANIFEST).is_file():
        raise BundleError(f"{path}: exists and is not a bundle; name another place with --out")
    info = source.info
    encoder, _ = take_apart(source.model)
    decoding = info.decoding
    with replaced_folder(path) as folder:
        components = build(folder)
        (folder / "vocab.json").write_text(info.vocabulary.to_json(), encoding="utf-8")
        (folder / LICENCE_FILE).write_text(_licence_text(source), encoding="utf-8")
        (folder / "samples").mkdir()
        manifest = Manifest(
            model=ModelInfo(
                name=info.name,
                parameters=sum(p.numel() for p in source.model.parameters()),
                config=info.preset.to_dict()["model"],
                checkpoint_sha256=source.sha256,
                licence=info.licence,
                licence_file=LICENCE_FILE,
                training_data=_training_data(source),
            ),
            target=target,
            preprocessing=info.raster,
            buckets=tuple((bucket.height, bucket.width) for bucket in padding.buckets),
            padding_step=padding.step,
            vocabulary=VocabularyInfo(sha256=info.vocabulary.sha256, size=len(info.vocabulary)),
            decoder=decoder_info(source.model, tuple(spec.name for spec in encoder.outputs)),
            decoding=decoding,
            calibration=info.calibration,
            components=components,
            samples=tuple(_write_sample(folder, ink, source, padding, decoding) for ink in samples),
            files=list_files(folder),
            tools=tool_versions(),
        )
        write_manifest(folder, manifest)
    return manifest


def tool_versions() -> dict[str, str]:
    """Versions of what makes and checks bundles, by name."""
    versions = {"python": platform.python_version()}
    for name in ("hmerctl", *_TOOLS):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _write_sample(folder: Path, ink: Ink, source: Source, padding: Padding, decoding: DecodingDefaults) -> Sample:
    """Put one ink into ``samples/``; what it must give is decoded by PyTorch through the device's own search."""
    file = f"samples/{ink.id}.json"
    (folder / file).write_text(format_strokes(replace(ink, truth=None)) + "\n", encoding="utf-8")
    written, spec = read_strokes(folder / file), source.info.raster
    pixels = rasterise_ink(written, spec).pixels
    options = decode_options(decoding, source.info.vocabulary)
    look = read(TorchEngine(source.model), lambda other: rasterise_ink(written, other), spec, padding, options)
    tokens = tuple(source.info.vocabulary.decode(look.best.ids))
    return Sample(
        file=file, tokens=tokens, latex=detokenise(tokens), raster_sha256=hashlib.sha256(pixels.tobytes()).hexdigest()
    )


def _licence_text(source: Source) -> str:
    """The licence that lies beside the weights, or where the terms of the named licence are found."""
    given = source.path / LICENCE_FILE if source.path is not None else None
    if given is not None and given.is_file():
        return given.read_text(encoding="utf-8")
    name = source.info.licence or "not stated"
    texts = ", ".join(f"https://spdx.org/licenses/{part}.html" for part in name.split(" AND "))
    return (
        f"Weights of the model {source.info.name!r}: {name}.\n"
        f"The text of this licence: {texts}\n"
        f"Trained on: {_training_data(source)}\n"
    )


def _training_data(source: Source) -> str:
    """What a checkpoint says that it was trained on, in words."""
    data = source.info.training.get("data", "not recorded")
    return ", ".join(map(str, data)) if isinstance(data, list | tuple) else str(data)
