"""The optimisation profiles of a bundle: which shapes its engines are built for."""

from collections.abc import Sequence

from hmerctl.export.graphs import complete_sizes
from hmerctl.runtime.buckets import Bucket
from hmerctl.runtime.engines.tensorrt_build import Profile, Profiles, ProfileSet
from hmerctl.runtime.manifest import TensorSpec

BEAM_WIDTHS = (1, 8)
"""Greedy, and the widest beam; a search with fewer beams runs in the wider profile."""

TYPICAL = Bucket(96, 384)
"""The bucket in the middle of handwritten expressions: where a ranged profile is tuned."""


def make_profiles(
    encoder: Sequence[TensorSpec],
    step: Sequence[TensorSpec],
    buckets: Sequence[Bucket],
    stride: int,
    max_steps: int,
    beam_widths: Sequence[int] = BEAM_WIDTHS,
) -> Profiles:
    """Profiles for the inputs of both graphs.

    Args:
        encoder, step: inputs with symbolic axes.
        buckets: that the bundle takes.
        stride: raster pixels per cell.
        max_steps: rows of a cache.
        beam_widths: each gets its own step profiles.

    Returns:
        ``ranged``: one encoder profile per bucket height and one step profile per beam width; ``exact``: one encoder
        profile per bucket and one step profile per bucket and beam width.
    """

    def profile(
        name: str, specs: Sequence[TensorSpec], low: Bucket, mid: Bucket, high: Bucket, beams: range
    ) -> Profile:
        def shapes(bucket: Bucket, width: int) -> dict[str, tuple[int, ...]]:
            sizes = {"batch": 1, "height": bucket.height, "width": bucket.width, "beam": width, "time": max_steps}
            known = complete_sizes(sizes, stride)
            return {s.name: tuple(known[d] if isinstance(d, str) else d for d in s.shape) for s in specs}

        return Profile(
            name=name, minimum=shapes(low, beams[0]), typical=shapes(mid, beams[-1]), maximum=shapes(high, beams[-1])
        )

    def fixed(name: str, specs: Sequence[TensorSpec], bucket: Bucket, beams: int) -> Profile:
        return profile(name, specs, bucket, bucket, bucket, range(beams, beams + 1))

    heights = sorted({b.height for b in buckets})
    lowest = Bucket(heights[0], min(b.width for b in buckets))
    highest = Bucket(heights[-1], max(b.width for b in buckets))
    middle = min(buckets, key=lambda b: abs(b.height - TYPICAL.height) + abs(b.width - TYPICAL.width))
    rows = {h: sorted(b for b in buckets if b.height == h) for h in heights}
    ranged_beams = {w: range(1, w + 1) for w in beam_widths}
    return Profiles(
        ranged=ProfileSet(
            encoder=tuple(
                profile(
                    f"height-{h}",
                    encoder,
                    r[0],
                    min(r, key=lambda b: abs(b.width - TYPICAL.width)),
                    r[-1],
                    range(1, 2),
                )
                for h, r in rows.items()
            ),
            step=tuple(
                profile(f"beams-{w}", step, lowest, middle, highest, beams) for w, beams in ranged_beams.items()
            ),
        ),
        exact=ProfileSet(
            encoder=tuple(fixed(f"{b.height}x{b.width}", encoder, b, 1) for b in buckets),
            step=tuple(fixed(f"{b.height}x{b.width}-beams-{w}", step, b, w) for w in beam_widths for b in buckets),
        ),
    )
