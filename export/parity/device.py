"""Level L5: the inks of a bundle, through everything that runs on the device, give what the bundle says."""

import hashlib

from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import Finding, holds, not_run
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.errors import EngineError
from hmerctl.runtime.recognizer import read_tokens


def check_samples(bundle: Bundle, engine: Engine) -> list[Finding]:
    """Raster to the bit, and tokens by the device's own search with the bundle's own defaults."""
    pictures = {picture.id: picture for picture in pictures_of_samples(bundle)}
    if not pictures:
        return [not_run("L5", "samples", "the bundle holds no sample inks")]
    rasters, tokens = [], []
    for sample, picture in zip(bundle.manifest.samples, pictures.values(), strict=True):
        digest = hashlib.sha256(picture.pixels.tobytes()).hexdigest()
        if sample.raster_sha256 not in (None, digest):
            rasters.append(picture.id)
        try:
            read = read_tokens(bundle, engine, bundle.file(sample.file))
        except EngineError as error:  # e.g. NaN after an overflow: a miss, which must not hide the other levels
            tokens.append(f"{picture.id}: {error}")
            continue
        if read != sample.tokens:
            tokens.append(f"{picture.id} gives {' '.join(read)!r}, not {' '.join(sample.tokens)!r}")
    count = len(pictures)
    return [
        holds(
            "L5", "sample rasters", not rasters, f"other bits: {', '.join(rasters)}" if rasters else f"{count} equal"
        ),
        holds("L5", "sample tokens", not tokens, "; ".join(tokens) or f"{count} equal"),
    ]
