"""What a quantiser measures its ranges on: inputs of both graphs as they occur when real ink is decoded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from hmerctl.export.session import cpu_session
from hmerctl.runtime.buckets import TO_BUCKETS, Padding
from hmerctl.runtime.decode import DecodeOptions, search
from hmerctl.runtime.engines.onnx import OnnxSession
from hmerctl.runtime.manifest import DecoderInfo

Feeds = dict[str, np.ndarray]


def encoder_feeds(rasters: Sequence[np.ndarray], padding: Padding = TO_BUCKETS) -> Iterator[Feeds]:
    """Encoder inputs, each raster padded as on the device.

    Args:
        rasters: uint8 (height, width) each, ink 255 on 0.
        padding: the bundle's; buckets if left out.
    """
    for pixels in rasters:
        raster, size = padding.pad(pixels)
        yield {"raster": raster, "size": size}


def step_feeds(
    encoder: onnx.ModelProto,
    step: onnx.ModelProto,
    decoder: DecoderInfo,
    rasters: Sequence[np.ndarray],
    every: int = 4,
    padding: Padding = TO_BUCKETS,
) -> Iterator[Feeds]:
    """Step inputs met while the rasters are decoded greedily by the float32 graphs.

    Args:
        every: only every so many steps: neighbours look alike.
    """
    encoding, stepping = cpu_session(encoder), _Recorder(cpu_session(step), every)
    names = [output.name for output in encoding.get_outputs()]
    for feed in encoder_feeds(rasters, padding):
        memory = dict(zip(names, encoding.run(None, feed), strict=True))
        session = OnnxSession(stepping, decoder.state, memory, 1, decoder.max_steps)
        search(session, DecodeOptions(beams=1, max_steps=decoder.max_steps))
        yield from stepping.take()


class _Recorder:
    """A session that keeps copies of what it is given."""

    def __init__(self, session: onnxruntime.InferenceSession, every: int) -> None:
        self._session, self._every, self._kept = session, every, list[Feeds]()
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs

    def run(self, names: list[str], feed: Mapping[str, np.ndarray]) -> list[Any]:
        if int(feed["position"][0]) % self._every == 0:
            self._kept.append({name: value.copy() for name, value in feed.items()})
        return self._session.run(names, dict(feed))

    def take(self) -> list[Feeds]:
        kept, self._kept = self._kept, []
        return kept
