"""InkML: the W3C's format for pen strokes, read safely and with patience for the quirks of real files.

Only what recognition needs is read: traces (with their X and Y channels, plain or difference-encoded), trace
groups with their labels, and the truth annotation. Brushes, transforms, units and time are passed over.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np

from hmerctl.runtime.errors import InkError
from hmerctl.runtime.ink import Ink, Symbol, read_limited, usable_points

_ALIASES = {
    r"\lt": "<",
    r"\gt": ">",
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\ne": r"\neq",
    r"\to": r"\rightarrow",
    "'": r"\prime",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
}


def read_inkml(source: str | Path | bytes, name: str = "") -> Ink:
    """Read one InkML document.

    What is wrong with a file but leaves its strokes readable is repaired, and named in ``Ink.notes``:

    ==========================  =========================================================================
    ``latin-1``                 bytes that are not valid UTF-8 were read as Latin-1
    ``bad-point``               points that are no number, infinite or beyond 1e9 were dropped
    ``empty-stroke``            traces without any point were dropped
    ``duplicate-trace-id``      two traces have one id; references mean the first
    ``dangling-reference``      a group refers to a trace that is not there
    ``duplicate-reference``     a trace stands in two groups; it stays in the first
    ``ungrouped-stroke``        the file has groups, but some trace is in none
    ``unlabelled-group``        a group of strokes has no label
    ``untyped-truth``           the truth was taken from an annotation that says no type
    ==========================  =========================================================================

    Args:
        source: a path, or the document itself.
        name: what to call the ink (and the document, in errors); the file's stem if empty.

    Returns:
        The ink, with at least one stroke. A group's label is its truth annotation as a vocabulary token;
        the bar of a fraction, which files label ``-``, becomes ``\\frac`` where the file's MathML says so.

    Raises:
        InkError: the file is missing, empty, larger than 16 MiB, not InkML, cut off, declares a document type
            or entities (which nothing here needs and entity bombs do), or holds no stroke.
    """
    data, where, stem = read_limited(source, name)
    if not data.strip():
        raise InkError(f"{where}: the file is empty; expected InkML")
    document, notes = _parse(data.removeprefix(b"\xef\xbb\xbf").lstrip(), where)
    strokes, position = _strokes(document, notes)
    if not strokes:
        raise InkError(f"{where}: holds no stroke that can be drawn")
    truth = document.truth
    if truth is None and document.untyped is not None:
        truth = document.untyped
        notes.append("untyped-truth")
    symbols = _symbols(document, position, notes)
    return Ink(tuple(strokes), symbols, truth, stem, tuple(dict.fromkeys(notes)))


@dataclass
class _Trace:
    id: str | None
    text: str
    channels: list[str]


@dataclass
class _Group:
    label: str = ""
    href: str | None = None
    members: list[str | int] = field(default_factory=list)
    """Trace ids referred to, and positions in ``_Document.traces`` of traces inside the group."""


@dataclass
class _Document:
    """What the XML holds, before any interpretation."""

    traces: list[_Trace] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)
    truth: str | None = None
    untyped: str | None = None
    elements: dict[str, str] = field(default_factory=dict)
    """xml:id to element name, inside annotations (MathML)."""


class _RefusedError(Exception):
    """Raised by a handler to stop the parser; the message says why."""


class _Handler:
    """Expat callbacks that fill a document; memory stays proportional to the strokes."""

    def __init__(self) -> None:
        self.document = _Document()
        self._path: list[str] = []
        self._open_groups: list[_Group] = []
        self._channels: list[str] = []
        self._annotation_depth = 0
        self._attributes: dict[str, str] = {}
        self._text: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        if not self._path and tag != "ink":
            raise _RefusedError(f"not InkML: the document is a <{tag[:40]}>, not an <ink>")
        self._path.append(tag)
        if self._annotation_depth:
            self._annotation_depth += 1
            if "xml:id" in attributes:
                self.document.elements.setdefault(attributes["xml:id"], tag)
        elif tag in ("trace", "annotation"):
            self._text, self._attributes = [], attributes
        elif tag == "traceFormat":
            self._channels = []
        elif tag == "channel":
            self._channels.append(attributes.get("name", ""))
        elif tag == "traceGroup":
            self._open_groups.append(_Group())
            self.document.groups.append(self._open_groups[-1])
        elif tag == "traceView" and self._open_groups and "traceDataRef" in attributes:
            self._open_groups[-1].members.append(attributes["traceDataRef"].lstrip("#"))
        elif tag == "annotationXML":
            self._annotation_depth = 1
            if self._open_groups and "href" in attributes:
                self._open_groups[-1].href = attributes["href"].lstrip("#")

    def text(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def end(self, tag: str) -> None:
        tag = self._path.pop()
        if self._annotation_depth:
            self._annotation_depth -= 1
        elif tag == "traceGroup":
            self._open_groups.pop()
        if self._text is None or tag not in ("trace", "annotation"):
            return
        text, self._text = "".join(self._text), None
        document, attributes = self.document, self._attributes
        if tag == "trace":
            if self._open_groups:
                self._open_groups[-1].members.append(len(document.traces))
            document.traces.append(_Trace(attributes.get("xml:id", attributes.get("id")), text, self._channels))
        elif self._open_groups:
            if attributes.get("type", "truth") == "truth":
                self._open_groups[-1].label = text
        elif self._path == ["ink"]:
            if attributes.get("type") == "truth" and document.truth is None:
                document.truth = text
            elif "type" not in attributes and document.untyped is None:
                document.untyped = text


def _refuse_declaration(*_: object) -> None:
    raise _RefusedError("declares a document type or entities; remove the <!DOCTYPE ...> declaration")


def _parse(data: bytes, where: str) -> tuple[_Document, list[str]]:
    """Parse as the document's declared encoding (UTF-8 by default), or as Latin-1 if the bytes are not that."""
    try:
        return _parse_as(data, None), []
    except _RefusedError as refused:
        raise InkError(f"{where}: {refused}") from None
    except expat.ExpatError as error:
        problem = error
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        try:
            return _parse_as(data, "iso-8859-1"), ["latin-1"]
        except _RefusedError as refused:
            raise InkError(f"{where}: {refused}") from None
        except expat.ExpatError as error:
            problem = error
    reason = expat.ErrorString(problem.code)
    raise InkError(f"{where}: not readable as InkML, or cut off: {reason} at line {problem.lineno}")


def _parse_as(data: bytes, encoding: str | None) -> _Document:
    handler = _Handler()
    parser = expat.ParserCreate(encoding)
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = _refuse_declaration
    parser.EntityDeclHandler = _refuse_declaration
    try:
        parser.Parse(data, True)
    except (LookupError, ValueError):
        raise _RefusedError("not readable as InkML: its encoding is not known; save it as UTF-8") from None
    return handler.document


def _strokes(document: _Document, notes: list[str]) -> tuple[list[np.ndarray], dict[str | int, int]]:
    """The strokes, and where in the list each trace (by id and by position in the document) stands."""
    strokes: list[np.ndarray] = []
    position: dict[str | int, int] = {}
    for i, trace in enumerate(document.traces):
        points = _points(trace)
        usable = usable_points(points)
        if not usable.all():
            notes.append("bad-point")
            points = points[usable]
        if not len(points):
            notes.append("empty-stroke")
            continue
        if trace.id in position:
            notes.append("duplicate-trace-id")
        elif trace.id is not None:
            position[trace.id] = len(strokes)
        position[i] = len(strokes)
        strokes.append(points)
    return strokes, position


def _points(trace: _Trace) -> np.ndarray:
    """X and Y of every point, float64 (points, 2); nan where a value is missing or not a number."""
    x = trace.channels.index("X") if "X" in trace.channels else 0
    y = trace.channels.index("Y") if "Y" in trace.channels else 1
    points: list[tuple[float, float]] = []
    try:
        for point in trace.text.split(","):
            values = point.split()
            if values:
                points.append((float(values[x]), float(values[y])))
    except (ValueError, IndexError):
        points = _encoded_points(trace.text, x, y)
    return np.array(points, np.float64).reshape(-1, 2)


_VALUE = re.compile(r"""([!'"]?)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\#[0-9a-fA-F]+|\*|[^\s,!'"*#+-]+)""")


def _encoded_points(text: str, x: int, y: int) -> list[tuple[float, float]]:
    """Points in InkML's compact notation, where values may touch and a prefix says how to read them.

    ``!`` explicit value, ``'`` difference to the last value, ``"`` difference of differences; a prefix holds
    for its channel until the next one. ``*`` repeats the channel's last value, ``#`` starts a hexadecimal number.
    """
    points: list[tuple[float, float]] = []
    modes, values, steps = [""] * 2, [0.0, 0.0], [0.0, 0.0]
    for point in text.split(","):
        found = _VALUE.findall(point)
        if not found:
            continue
        for slot, channel in enumerate((x, y)):
            prefix, body = found[channel] if channel < len(found) else ("", "missing")
            modes[slot] = prefix or modes[slot]
            if body == "*":
                continue
            number = _number(body)
            before = values[slot]
            if modes[slot] == "'":
                values[slot] += number
            elif modes[slot] == '"':
                values[slot] += steps[slot] + number
            else:
                values[slot] = number
            steps[slot] = values[slot] - before
        points.append((values[0], values[1]))
    return points


def _number(body: str) -> float:
    try:
        return float(int(body[1:], 16)) if body.startswith("#") else float(body)
    except (ValueError, OverflowError):
        return float("nan")


def _symbols(document: _Document, position: dict[str | int, int], notes: list[str]) -> tuple[Symbol, ...]:
    """The groups that hold strokes themselves; groups of groups only give structure."""
    symbols: list[Symbol] = []
    taken: set[int] = set()
    dropped = set(range(len(document.traces))) - position.keys()
    dropped_ids = {document.traces[i].id for i in dropped}
    for group in document.groups:
        members = []
        for reference in group.members:
            stroke = position.get(reference)
            if stroke is None:
                if reference not in dropped and reference not in dropped_ids:
                    notes.append("dangling-reference")
            elif stroke in taken:
                notes.append("duplicate-reference")
            else:
                taken.add(stroke)
                members.append(stroke)
        if not members:
            continue
        label = group.label.strip()
        label = _ALIASES.get(label, label)
        if not label:
            notes.append("unlabelled-group")
        if label == "-" and group.href is not None and document.elements.get(group.href) == "mfrac":
            label = r"\frac"
        symbols.append(Symbol(label, tuple(members)))
    if symbols and len(taken) < len(set(position.values())):
        notes.append("ungrouped-stroke")
    return tuple(symbols)
