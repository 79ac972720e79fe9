"""What the commands read with: a checkpoint in PyTorch, or a bundle in its target's engine, opened alike."""

from dataclasses import dataclass
from pathlib import Path

from hmerctl.export.reference import TorchEngine
from hmerctl.runtime.buckets import TO_BUCKETS, Padding
from hmerctl.runtime.bundle import open_bundle
from hmerctl.runtime.decode import DecodeOptions
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.manifest import DecodingDefaults
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.recognizer import decode_options
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.targets.base import find
from hmerctl.train.checkpoint import DESCRIPTION, load_checkpoint
from hmerctl.train.models.parts import MAX_STEPS


@dataclass(frozen=True)
class OpenModel:
    """A model that can read.

    Attributes:
        name: of the checkpoint, or the bundle's id.
        engine: what runs it.
        vocabulary: what its ids mean.
        raster: the raster contract it was trained on.
        padding: how large a raster is made for the engine.
        decoding: how it wants to be decoded.
        max_steps: tokens that its decoder can write, eos included.
    """

    name: str
    engine: Engine
    vocabulary: Vocabulary
    raster: RasterSpec
    padding: Padding
    decoding: DecodingDefaults
    max_steps: int

    def options(self, **changes: object) -> DecodeOptions:
        """How to decode; changes that are not None take the place of the model's own defaults."""
        return decode_options(self.decoding.but(**changes), self.vocabulary, self.max_steps)


def open_model(path: Path) -> OpenModel:
    """Open a checkpoint folder or a bundle.

    Raises:
        HmerError: it is neither, or cannot be used; the message names the file and the fix.
    """
    if (path / DESCRIPTION).is_file():
        recognizer, info = load_checkpoint(path)
        return OpenModel(
            info.name, TorchEngine(recognizer), info.vocabulary, info.raster, TO_BUCKETS, info.decoding, MAX_STEPS
        )
    bundle = open_bundle(path)
    manifest = bundle.manifest
    engine = find(manifest.target.name).load(bundle)
    return OpenModel(
        manifest.bundle_id,
        engine,
        bundle.vocabulary,
        manifest.preprocessing,
        bundle.padding(),
        manifest.decoding,
        manifest.decoder.max_steps,
    )
