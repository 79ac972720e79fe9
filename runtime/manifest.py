"""``manifest.json``: everything about a bundle that is not a weight. The JSON Schema comes from these classes.

Unknown fields are ignored, so that a runtime reads bundles of a newer minor version; a newer major version is refused
(``hmerctl.runtime.bundle``).
"""

import hashlib
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.state import StateSpec
from hmerctl.runtime.vocabulary import EOS, PAD, SOS

SCHEMA_VERSION = "1.1"
"""major.minor; the major part is raised when an older runtime could no longer read the bundle rightly."""


_MAX_SIDE = 4096
"""Longest side of a bucket, in pixels; more would only fill the memory."""


def safe_path(path: str) -> str:
    """Return a path that cannot leave a bundle on any system; ValueError for any other."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or ":" in path or "\0" in path:
        raise ValueError(f"path {path!r} leaves the bundle; only plain relative paths with / are allowed")
    return path


BundlePath = Annotated[str, Field(min_length=1, max_length=240), AfterValidator(safe_path)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Fraction = Annotated[float, Field(ge=0, le=1)]
Extent = Annotated[int, Field(ge=4, le=256)]


class Part(BaseModel):
    """Base of the manifest's records: immutable."""

    model_config = ConfigDict(frozen=True)


class FileEntry(Part):
    """One file of the bundle; ``manifest.json`` itself is not listed."""

    path: BundlePath
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class TensorSpec(Part):
    """An input or output of a graph.

    Symbolic axes are strings: batch, beam, height, width, rows, columns, cells, time.
    """

    name: str
    dtype: Literal["float32", "float16", "int32", "int8", "uint8"]
    shape: tuple[int | str, ...]


class Component(Part):
    """One graph.

    Attributes:
        name: unique in the bundle, e.g. ``encoder``, ``encoder-64x128``, ``step``.
        format: what kind of file it is, e.g. ``onnx``, ``ort``, ``mlpackage``.
        file: a listed file, or a folder whose files are listed (``.mlpackage``).
        function: which function of the file, where the format has several.
        bucket: height and width in pixels that it is made for; None for every bucket.
        beams: number of beams that a step takes; None for any number.
    """

    name: str
    role: Literal["encoder", "step"]
    format: str
    file: BundlePath
    function: str | None = None
    bucket: tuple[int, int] | None = None
    beams: int | None = None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class ModelInfo(Part):
    """Where the weights come from.

    Attributes:
        name: e.g. ``edge``.
        parameters: number of trained numbers.
        config: the model's configuration as saved with the checkpoint.
        checkpoint_sha256: of the weights file that was exported.
        licence: SPDX expression for the weights.
        licence_file: its text in the bundle.
        training_data: what it was trained on, in words.
    """

    name: str
    parameters: int
    config: dict[str, Any] = {}
    checkpoint_sha256: Sha256 | None = None
    licence: str
    licence_file: BundlePath | None = None
    training_data: str


class TargetInfo(Part):
    """What the bundle is made for.

    Attributes:
        name: the target, e.g. ``onnx``, ``jetson-trt``.
        precision: ``fp32``, ``fp16``, ``int8``, or a name of the target's own.
        opset: of ONNX graphs.
        minimum_runtime: lowest versions by name, e.g. ``{"onnxruntime": "1.18"}`` or ``{"iOS": "16"}``.
    """

    name: str
    precision: str
    opset: int | None = None
    minimum_runtime: dict[str, Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]] = {}


class DecoderInfo(Part):
    """How a host drives the step graph.

    Attributes:
        memory: names of the encoder outputs that every step gets, in order.
        state: tensors carried from step to step; each starts at zero.
        max_steps: rows of a full cache: the largest number of tokens, eos included.
        stride: raster pixels per cell of the attention, both axes.
        pad, sos, eos: ids of the special tokens.
    """

    memory: tuple[str, ...]
    state: tuple[StateSpec, ...]
    max_steps: Annotated[int, Field(ge=1, le=4096)]
    stride: Annotated[int, Field(ge=1)]
    pad: int = 0
    sos: int = 1
    eos: int = 2


class VocabularyInfo(Part):
    """The vocabulary's file; ``sha256`` is that of ``Vocabulary.to_json``, also found in the ONNX metadata."""

    file: BundlePath = "vocab.json"
    sha256: Sha256
    size: Annotated[int, Field(ge=4)]


class DecodingDefaults(Part):
    """Decoding options unless the caller says otherwise; see ``hmerctl.runtime.decode``.

    Attributes:
        beams: beam width, 1 is greedy.
        length_power: a sequence scores its log-probability divided by length ** length_power.
        prune: continuations less than this share as probable as the step's best, or as the best sequence that has
            ended, are dropped, so that the beam is wide only where the model is in doubt; 0 keeps all. (From 1.1.
            Without it results are much the same.)
        grammar: allow only tokens that keep braces and arguments balanced.
        reread: a reading less probable than this is read again from a raster of other extents, and the more probable
            of both is taken; 0 for never. (From 1.1. Without it results are worse.)
        reread_extents: ``symbol_extent`` and ``stroke_extent`` of that raster, in place of the preprocessing's.
        reread_work: most work of a first reading that is read again, its raster's pixels (without padding) times its
            tokens (eos included), so that what takes long is not made to take twice as long; 0 for no limit. (From
            1.1. Without it more is read twice.)
        accept: confidence from which a result is accepted without review.
        reject: confidence below which a result is rejected.
    """

    beams: Annotated[int, Field(ge=1, le=64)] = 1
    length_power: Annotated[float, Field(ge=0, le=2)] = 1.0
    prune: Fraction = 0.0
    grammar: bool = False
    reread: Fraction = 0.0
    reread_extents: tuple[Extent, Extent] = (23, 20)
    reread_work: Annotated[int, Field(ge=0)] = 0
    accept: Fraction = 0.9
    reject: Fraction = 0.1

    def but(self, **changes: object) -> "DecodingDefaults":
        """A copy with the changes that are not None.

        Raises:
            ValueError: a value out of its range.
        """
        wanted = {name: value for name, value in changes.items() if value is not None}
        return DecodingDefaults.model_validate({**self.model_dump(), **wanted})

    def described(self) -> str:
        """For people: ``greedy``, or ``beam 4, length power 1, pruned at 0.1, grammar, read again below 0.4``."""
        parts = ["greedy"] if self.beams == 1 else [f"beam {self.beams}", f"length power {self.length_power:g}"]
        parts += [f"pruned at {self.prune:g}"] if self.prune and self.beams > 1 else []
        parts += ["grammar"] if self.grammar else []
        limit = f" if short (work {self.reread_work:,})" if self.reread_work else ""
        parts += [f"read again below {self.reread:g}{limit}"] if self.reread else []
        return ", ".join(parts)

    def reads_as(self, other: "DecodingDefaults") -> bool:
        """Whether both give the same readings, whatever they accept."""
        return self == other.but(accept=self.accept, reject=self.reject)


Feature = Literal["log_prob", "mean_log_prob", "min_log_prob", "length"]


class Calibration(Part):
    """Logistic map from a sequence's features to the probability that it is right.

    ``confidence = 1 / (1 + exp(-(bias + sum(weights[name] * feature[name]))))``; the features are named in
    ``hmerctl.runtime.confidence``.
    """

    bias: FiniteFloat
    weights: dict[Feature, FiniteFloat]
    fitted_on: str


class Sample(Part):
    """An ink or picture of the bundle with what it must give.

    Attributes:
        file: the ink (``.json`` strokes or ``.inkml``) or picture.
        tokens: the expected tokens.
        latex: the same as LaTeX.
        raster_sha256: of the raster's bytes, row by row, where the raster contract fixes it to the bit.
    """

    file: BundlePath
    tokens: tuple[str, ...]
    latex: str
    raster_sha256: Sha256 | None = None


Level = Literal["L0", "L1", "L2", "L3", "L4", "L5"]
Status = Literal["passed", "failed", "stand-in", "not-run"]


class ParityLevel(Part):
    """One rung of the parity ladder.

    Attributes:
        status: ``stand-in`` passed on something weaker than the device's own engine; ``not-run`` is no pass.
        engine: what really ran.
        detail: one line for people.
        figures: measured numbers and bounds by name.
    """

    level: Level
    status: Status
    engine: str
    detail: str
    figures: dict[str, float] = {}


NEEDED_LEVELS = ("L0", "L1", "L2", "L3")
"""Levels that must have run for a bundle to count as verified."""


class ParityReport(Part):
    """What ``hmerctl verify`` found.

    Attributes:
        files_sha256: ``Manifest.files_sha256`` of the bundle that was verified; another value makes the report stale.
    """

    files_sha256: Sha256
    levels: tuple[ParityLevel, ...]
    tools: dict[str, str] = {}

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the levels that failed."""
        return tuple(level.level for level in self.levels if level.status == "failed")

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the levels of ``NEEDED_LEVELS`` that did not run."""
        ran = {level.level for level in self.levels if level.status != "not-run"}
        return tuple(level for level in NEEDED_LEVELS if level not in ran)

    @property
    def verified(self) -> bool:
        """No level failed, and all of ``NEEDED_LEVELS`` ran."""
        return not self.failed and not self.missing

    def summary(self) -> dict[str, str]:
        """Status by level."""
        return {level.level: level.status for level in self.levels}


ParityState = Literal["verified", "incomplete", "failed", "stale", "missing"]


class Manifest(Part):
    """The whole of ``manifest.json``.

    Attributes:
        buckets: heights and widths that the encoder takes, ordered as in ``hmerctl.runtime.buckets``.
        padding_step: the encoder takes any multiple of so many pixels up to the largest bucket: pad to the next one.
            None: pad to the first bucket that fits. (From 1.1. A host that does not know it may pad to buckets.)
        tools: versions of what made the bundle, by name.
    """

    schema_version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")] = SCHEMA_VERSION
    model: ModelInfo
    target: TargetInfo
    preprocessing: RasterSpec
    buckets: Annotated[tuple[tuple[int, int], ...], Field(min_length=1)]
    padding_step: Annotated[int, Field(ge=1, le=_MAX_SIDE)] | None = None
    vocabulary: VocabularyInfo
    decoder: DecoderInfo
    decoding: DecodingDefaults = DecodingDefaults()
    calibration: Calibration | None = None
    components: tuple[Component, ...]
    samples: tuple[Sample, ...] = ()
    files: tuple[FileEntry, ...]
    parity: ParityReport | None = None
    tools: dict[str, str] = {}

    @property
    def files_sha256(self) -> str:
        """Digest of all files' paths and digests: names this very bundle, whatever its parity report says."""
        lines = sorted(f"{entry.path} {entry.sha256}\n" for entry in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def bundle_id(self) -> str:
        """``<model>-<target>-<precision>@<first 12 digits of files_sha256>``."""
        return f"{self.model.name}-{self.target.name}-{self.target.precision}@{self.files_sha256[:12]}"

    @property
    def parity_state(self) -> ParityState:
        """Whether a parity report of exactly these files is there, and what it found."""
        if self.parity is None:
            return "missing"
        if self.parity.files_sha256 != self.files_sha256:
            return "stale"
        if self.parity.failed:
            return "failed"
        return "verified" if self.parity.verified else "incomplete"

    @model_validator(mode="after")
    def _check_references(self) -> "Manifest":
        listed = {entry.path for entry in self.files}
        if len(listed) != len(self.files):
            raise ValueError("a file is listed twice")
        for component in self.components:
            if component.file not in listed and not any(p.startswith(component.file + "/") for p in listed):
                raise ValueError(f"component {component.name!r}: {component.file} is not among the files")
        for path in (self.vocabulary.file, self.model.licence_file, *(sample.file for sample in self.samples)):
            if path is not None and path not in listed:
                raise ValueError(f"{path} is not among the files")
        if problem := self._objection():
            raise ValueError(problem)
        missing = {"encoder", "step"} - {component.role for component in self.components}
        if missing:
            raise ValueError(f"no component has the role {' or '.join(sorted(missing))}")
        return self

    def _objection(self) -> str | None:
        """Why no host of this schema could run the bundle, judging by its numbers alone; None if one could."""
        stride = self.decoder.stride
        for height, width in self.buckets:
            if not (0 < height <= _MAX_SIDE and 0 < width <= _MAX_SIDE) or height % stride or width % stride:
                return f"bucket {height} x {width} is not made of cells of {stride} pixels, up to {_MAX_SIDE}"
        if self.padding_step is not None and self.padding_step % stride:
            return f"padding to multiples of {self.padding_step} pixels does not give cells of {stride} pixels"
        if self.padding_step is not None and any(
            max(sides) % self.padding_step for sides in zip(*self.buckets, strict=True)
        ):
            return f"padding to multiples of {self.padding_step} pixels goes beyond the largest bucket"
        if (self.decoder.pad, self.decoder.sos, self.decoder.eos) != (PAD, SOS, EOS):
            return f"the decoder's pad, sos and eos are not {PAD}, {SOS} and {EOS}"
        return None


def manifest_schema() -> dict[str, Any]:
    """The JSON Schema of ``manifest.json``."""
    return Manifest.model_json_schema()
