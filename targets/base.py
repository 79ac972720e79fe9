"""What a target is, and how targets are found.

A target is an object of a subclass of ``Target``, named by an entry point of the group ``hmerctl.targets``; a package
outside this repository adds one in its own ``pyproject.toml``::

    [project.entry-points."hmerctl.targets"]
    mydevice = "mypackage.target:MyDevice"
"""

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hmerctl.export.parity.report import TOLERANCES, Finding, Tolerance
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import BUCKETS, Bucket, Padding
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.manifest import Component, Level

GROUP = "hmerctl.targets"

FROM_L2: tuple[Level, ...] = ("L2", "L3", "L4", "L5")
"""The levels that an engine computes."""


class TargetError(HmerError):
    """An unknown target or precision, a combination that a target refuses, or a tool that is missing."""


@dataclass(frozen=True)
class Requirement:
    """Something a target needs, and whether it is here.

    Attributes:
        name: e.g. ``onnxruntime`` or ``CUDA device``.
        needed_for: e.g. ``build``, ``parity``, ``run``.
        found: its version or place, None if it is not here.
        how: how to get it, one line.
    """

    name: str
    needed_for: str
    found: str | None
    how: str


@dataclass(frozen=True)
class PlannedComponent:
    """A graph that a build will write.

    Attributes:
        name, role, format, file: as in the manifest's ``Component``.
        sizes: symbolic axes that become constant, e.g. ``{"height": 64, "width": 128}``.
    """

    name: str
    role: str
    format: str
    file: str
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What a build will do; printable, made without doing any of it.

    Attributes:
        target, precision: as asked for, defaults filled in.
        opset: of ONNX graphs, or None.
        components: in the order in which they are written.
        buckets: raster sizes that the encoder will take.
        padding_step: see ``Manifest``.
        minimum_runtime: lowest versions on the device by name, e.g. ``{"onnxruntime": "1.18"}``.
        notes: one line each, for people.
        refusal: why this model cannot be built for this target and precision, with a source; None if it can.
    """

    target: str
    precision: str
    components: tuple[PlannedComponent, ...]
    opset: int | None = None
    buckets: tuple[Bucket, ...] = BUCKETS
    padding_step: int | None = None
    minimum_runtime: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refusal: str | None = None

    @property
    def padding(self) -> Padding:
        """How large a raster is made before it goes into the encoder."""
        return Padding(self.buckets, self.padding_step)


ONE_GRAPH_A_ROLE = tuple(
    PlannedComponent(name=role, role=role, format="onnx", file=f"{role}.onnx") for role in ("encoder", "step")
)
"""The components of a target whose ONNX graphs serve every bucket and beam width."""


class Target(ABC):
    """A device and the way there.

    Attributes:
        name: ``<platform>[-<backend>]``.
        summary: one line for ``hmerctl doctor``.
        precisions: what it can be built in, the default first.
        engine: what runs its bundles on the device.
        stand_ins: by level of the parity ladder, what takes the engine's place where ``stand_in`` holds.
        device: where the device's own engine has been run so far, in words; "not run" if nowhere.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    precisions: ClassVar[tuple[str, ...]]
    engine: ClassVar[str] = "the device's engine"
    stand_ins: ClassVar[Mapping[Level, str]] = {}
    device: ClassVar[str] = "not run"

    @abstractmethod
    def requirements(self) -> list[Requirement]:
        """What it needs, and whether that is here."""

    @abstractmethod
    def plan(self, source: Source, precision: str) -> Plan:
        """What ``build`` will write. Pure: reads the model, writes nothing, needs none of the target's tools."""

    @abstractmethod
    def build(self, source: Source, plan: Plan, folder: Path) -> tuple[Component, ...]:
        """Write the graphs of a plan into a folder (and any other file that the target wants in its bundles).

        Returns:
            the components, for the manifest.

        Raises:
            HmerError: one line with the fix.
        """

    @abstractmethod
    def check(self, bundle: Bundle) -> list[Finding]:
        """Level L0: operators and limits of the graphs, and that they agree with the manifest."""

    @abstractmethod
    def load(self, bundle: Bundle) -> Engine:
        """The engine that the parity ladder drives: the device's own or, where it cannot run here, a stand-in."""

    def stand_in(self) -> bool:
        """Whether ``load`` gives something weaker than the device's own engine."""
        return False

    def proof(self, level: Level) -> str:
        """What proves a level of the parity ladder away from the device, in the words of docs/targets/README.md."""
        return f"stand-in: {self.stand_ins[level]}" if level in self.stand_ins else "proven"

    def tolerance(self, precision: str) -> Tolerance:
        """Bounds for the parity ladder."""
        return TOLERANCES[precision]

    def choose_precision(self, precision: str | None) -> str:
        """The default for None.

        Raises:
            TargetError: a precision that the target does not have.
        """
        if precision is None:
            return self.precisions[0]
        if precision not in self.precisions:
            raise TargetError(
                f"target {self.name} has no precision {precision!r}; choose {', '.join(self.precisions)}"
            )
        return precision


def names() -> list[str]:
    """Names of all installed targets."""
    return sorted({entry.name for entry in importlib.metadata.entry_points(group=GROUP)})


def find(name: str) -> Target:
    """The target of a name.

    Raises:
        TargetError: unknown, its package cannot be imported, or it is not a ``Target``.
    """
    for entry in importlib.metadata.entry_points(group=GROUP, name=name):
        try:
            target = entry.load()()
        except Exception as error:  # any fault of a third party's package
            raise TargetError(f"target {name} ({entry.value}) cannot be loaded: {error!r}; reinstall it") from error
        if not isinstance(target, Target):
            raise TargetError(f"target {name}: {entry.value} is not a hmerctl.targets.base.Target")
        return target
    raise TargetError(f"unknown target {name!r}; installed are {', '.join(names())}")


def installed(distribution: str) -> str | None:
    """Version of a Python distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def package(name: str, needed_for: str, how: str) -> Requirement:
    """A requirement that is a Python distribution."""
    return Requirement(name, needed_for, installed(name), how)


def require(requirements: Sequence[Requirement], purpose: str) -> None:
    """Raise TargetError for the first requirement of a purpose that is not here."""
    for requirement in requirements:
        if requirement.needed_for == purpose and requirement.found is None:
            raise TargetError(f"{requirement.name} is needed to {purpose}: {requirement.how}")
