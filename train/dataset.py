"""The dataset folder: expressions with their labels in one memory-mapped Arrow file.

A folder holds ``expressions.arrow`` (Arrow IPC file, one row per expression) and ``dataset.json`` (format version,
number of expressions, their origins, the report of how they came to be). Rows are written in the order given and stay
in it, so an index names the same expression for as long as the folder is not written anew. Inks and pictures are kept
as they are and drawn by whichever raster contract a model asks for.
"""

import bisect
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from hmerctl.runtime.errors import DataError, PictureError
from hmerctl.runtime.files import replaced_folder
from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.runtime.picture import picture_drawer, read_grey
from hmerctl.runtime.raster import Raster, RasterSpec, rasterise_ink

FORMAT_VERSION = 2
"""Raised when a reader of the old format would misread the new one. Format 1 kept rasters in place of pictures."""

ARROW_FILE = "expressions.arrow"
JSON_FILE = "dataset.json"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tokens", pa.string(), nullable=False),  # normalised, joined by single spaces
        pa.field("truth", pa.string()),  # LaTeX as the file holds it
        pa.field("points", pa.list_(pa.float32())),  # x0 y0 x1 y1 ... of all strokes, ink units
        pa.field("stroke_lengths", pa.list_(pa.int32())),  # points in each stroke
        pa.field("symbol_labels", pa.list_(pa.string())),  # vocabulary token of each symbol group, "" if unknown
        pa.field("symbol_strokes", pa.list_(pa.list_(pa.int32()))),  # stroke indices of each symbol group
        pa.field("symbols_match", pa.bool_()),  # the groups agree with the tokens; null without groups
        pa.field("picture", pa.binary()),  # a picture file; ``data prepare`` writes grey PNG
    ]
)

_ROWS_PER_BATCH = 1024
_PICTURES_PER_BATCH = 64 * 2**20
"""Bytes; a column of a batch may not hold 2 GiB."""


@dataclass(frozen=True)
class Expression:
    """One expression: a label and either its ink or its picture.

    Attributes:
        id: unique name in the dataset, usually the file's stem.
        tokens: the label, normalised LaTeX tokens.
        ink: the strokes as read, coordinates rounded to float32; None in a picture dataset.
        picture: the contents of a picture file of any kind that ``recognize`` reads; None in an ink dataset.
        symbols_match: whether ``ink.symbols`` has the symbols of ``tokens``, no more and no fewer; None without them.
    """

    id: str
    tokens: tuple[str, ...]
    ink: Ink | None = None
    picture: bytes | None = field(default=None, repr=False)
    symbols_match: bool | None = None

    def source(self) -> Ink | Image.Image:
        """What a ``Recognizer`` reads: the picture, decoded, or the ink.

        Raises:
            DataError: there is neither, or the picture is broken.
        """
        if self.picture is not None:
            try:
                return Image.fromarray(read_grey(self.picture))
            except PictureError as error:
                raise DataError(f"{self.id}: {error}; prepare the dataset again") from error
        if self.ink is None:
            raise DataError(f"{self.id}: neither ink nor picture in the dataset")
        return self.ink

    def drawer(self) -> Callable[[RasterSpec], Raster]:
        """Draws it by any raster contract, just as a file that holds it would be drawn. Errors as of ``source``."""
        source = self.source()
        return partial(rasterise_ink, source) if isinstance(source, Ink) else picture_drawer(source)

    def drawn(self, spec: RasterSpec | None = None) -> Raster:
        """The raster that an encoder sees, by one contract. Errors as of ``source``."""
        return self.drawer()(spec or RasterSpec())


@dataclass(frozen=True)
class Origin:
    """Where expressions come from: stands in checkpoints, bundles and model cards that were trained on them.

    Attributes:
        name: in words, such as "CROHME training inks".
        licence: an SPDX expression; what is trained on the data has it too. None where it is not known.
    """

    name: str
    licence: str | None = None


def write_dataset(
    path: Path | str, expressions: Iterable[Expression], report: Any, origins: Iterable[Origin] = ()
) -> int:
    """Write a dataset folder; an older dataset at ``path`` is replaced when the new one is complete.

    Args:
        path: the folder. Must not exist, be empty, or hold a dataset.
        expressions: consumed one batch at a time, so they need not fit in memory. May fill in ``report`` as it goes.
        report: a dataclass, or a mapping that JSON can hold; read after the last expression.
        origins: where the expressions come from; without any, the folder's name will have to do.

    Returns:
        the number of expressions written.

    Raises:
        DataError: ``path`` holds something else or cannot be written, or an id comes twice.
    """
    target = Path(path)
    check_replaceable(target)
    try:
        with replaced_folder(target) as folder:
            count = _write_arrow(folder / ARROW_FILE, expressions)
            plain = asdict(report) if is_dataclass(report) and not isinstance(report, type) else dict(report)
            named = [asdict(origin) for origin in dict.fromkeys(origins)]
            about = {"format_version": FORMAT_VERSION, "count": count, "origins": named, "report": plain}
            (folder / JSON_FILE).write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from error
    return count


def check_replaceable(target: Path) -> None:
    """Raise DataError if writing a dataset to ``target`` would destroy something that is not a dataset."""
    if target.is_dir():
        if any(target.iterdir()) and not (target / JSON_FILE).is_file():
            raise DataError(f"{target}: holds files that are not a dataset; name a new folder")
    elif target.exists() or target.is_symlink():
        raise DataError(f"{target}: exists and is not a folder; name a new folder")


def _write_arrow(path: Path, expressions: Iterable[Expression]) -> int:
    seen: set[str] = set()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for rows in _in_batches(expressions):
            for row in rows:
                if row.id in seen:
                    raise DataError(f"{row.id}: this id comes twice; ids must be unique in a dataset")
                seen.add(row.id)
            writer.write_batch(pa.RecordBatch.from_pylist([_to_row(row) for row in rows], schema=SCHEMA))
    return len(seen)


def _in_batches(expressions: Iterable[Expression]) -> Iterator[list[Expression]]:
    rows: list[Expression] = []
    size = 0
    for expression in expressions:
        rows.append(expression)
        size += len(expression.picture or b"")
        if len(rows) == _ROWS_PER_BATCH or size >= _PICTURES_PER_BATCH:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _to_row(expression: Expression) -> dict[str, Any]:
    row: dict[str, Any] = {"id": expression.id, "tokens": " ".join(expression.tokens)}
    ink = expression.ink
    if ink is not None:
        strokes = [np.asarray(s, np.float32) for s in ink.strokes]
        row["truth"] = ink.truth
        row["points"] = np.concatenate([s.reshape(-1) for s in strokes]) if strokes else np.zeros(0, np.float32)
        row["stroke_lengths"] = [len(s) for s in strokes]
        if ink.symbols:
            row["symbol_labels"] = [s.label for s in ink.symbols]
            row["symbol_strokes"] = [list(s.strokes) for s in ink.symbols]
            row["symbols_match"] = expression.symbols_match
    if expression.picture is not None:
        row["picture"] = expression.picture
    return row


class ExpressionDataset:
    """A dataset folder, read in place: ``len(dataset)``, ``dataset[i]``, iteration.

    The file is mapped, not loaded: opening is quick whatever its size, processes share the pages, and a pickled
    dataset (for loader processes) is only its path.

    Raises:
        DataError: the folder is not a dataset, is damaged, was written by a newer version, or holds pictures as an
            older version kept them.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.about = _read_about(self.path)
        arrow = self.path / ARROW_FILE
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(arrow), "r"))
            if not reader.schema.equals(SCHEMA):
                raise DataError(f"{arrow}: has other columns than format {FORMAT_VERSION}; prepare the dataset again")
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        except (OSError, pa.ArrowInvalid) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{arrow}: cannot be read ({reason}); prepare the dataset again") from error
        self._batches = [_Batch(batch) for batch in batches]
        ends = np.cumsum([batch.num_rows for batch in batches], dtype=int)
        self._ends: list[int] = ends.tolist()
        if len(self) != self.about["count"]:
            raise DataError(f"{arrow}: holds {len(self)} expressions, {JSON_FILE} says {self.about['count']!r}")
        if self.about["format_version"] < 2 and any(batch.has_pictures for batch in self._batches):
            raise DataError(
                f"{self.path}: format 1 kept rasters in place of its pictures; prepare the dataset again from them"
            )

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        return (ExpressionDataset, (self.path,))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Expression:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} expressions")
        batch = bisect.bisect_right(self._ends, index)
        return self._batches[batch].expression(index - (self._ends[batch - 1] if batch else 0))

    def __iter__(self) -> Iterator[Expression]:
        return (self[i] for i in range(len(self)))

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the expressions come from; of a dataset that does not say, the name of its folder.

        Raises:
            DataError: the origins are damaged.
        """
        try:
            origins = tuple(Origin(**origin) for origin in self.about.get("origins", ()))
        except TypeError as error:
            raise DataError(f"{self.path / JSON_FILE}: origins are damaged ({error}); prepare it again") from error
        return origins or (Origin(self.path.resolve().name),)

    @property
    def report(self) -> dict[str, Any]:
        """What ``data prepare`` read, repaired and skipped."""
        return self.about["report"]

    @cached_property
    def ids(self) -> list[str]:
        """Ids of all expressions, in order, without reading inks or pictures."""
        return [name for batch in self._batches for name in batch.ids.to_pylist()]

    @cached_property
    def labels(self) -> list[tuple[str, ...]]:
        """Tokens of all expressions, in order, without reading inks or pictures."""
        return [tuple(text.split()) for batch in self._batches for text in batch.tokens.to_pylist()]


def _read_about(path: Path) -> dict[str, Any]:
    file = path / JSON_FILE
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        version, _ = about["format_version"], about["count"]
    except FileNotFoundError:
        raise DataError(
            f"{path}: is not a dataset folder (no {JSON_FILE}); make one with 'hmerctl data prepare'"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: is damaged ({error!r}); prepare the dataset again") from error
    if version not in range(1, FORMAT_VERSION + 1):
        raise DataError(
            f"{file}: format {version!r}, this version reads up to {FORMAT_VERSION}; prepare the dataset again"
        )
    return about


class _Batch:
    """Zero-copy views of one record batch; Arrow's own scalars would cost several times the reading."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.ids = batch.column("id")
        self.tokens = batch.column("tokens")
        self._truth = batch.column("truth")
        self._picture = batch.column("picture")
        self.has_pictures = self._picture.null_count < batch.num_rows
        self._match = batch.column("symbols_match")
        self._points = _Lists(batch.column("points"))
        self._lengths = _Lists(batch.column("stroke_lengths"))
        self._labels = batch.column("symbol_labels")
        self._strokes = _Lists(batch.column("symbol_strokes"))
        self._members = _Lists(self._strokes.values)

    def expression(self, row: int) -> Expression:
        name = self.ids[row].as_py()
        return Expression(
            name,
            tuple(self.tokens[row].as_py().split()),
            self._ink(row, name),
            self._picture[row].as_py(),
            self._match[row].as_py(),
        )

    def _ink(self, row: int, name: str) -> Ink | None:
        if not self._points.valid(row):
            return None
        points = self._points.numpy(row).astype(np.float64).reshape(-1, 2)
        strokes, begin = [], 0
        for length in self._lengths.numpy(row).tolist():
            strokes.append(points[begin : begin + length])
            begin += length
        return Ink(tuple(strokes), self._symbols(row), self._truth[row].as_py(), name)

    def _symbols(self, row: int) -> tuple[Symbol, ...]:
        labels = self._labels[row].as_py()
        if labels is None:
            return ()
        first = int(self._strokes.offsets[row])
        members = (tuple(self._members.numpy(first + i).tolist()) for i in range(len(labels)))
        return tuple(Symbol(label, strokes) for label, strokes in zip(labels, members, strict=True))


class _Lists:
    """A list column as its offsets and flat values."""

    def __init__(self, column: pa.ListArray) -> None:
        self.offsets = column.offsets.to_numpy()
        self.values = column.values
        self._flat = None if pa.types.is_list(self.values.type) else self.values.to_numpy()
        self._valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)

    def valid(self, row: int) -> bool:
        return self._valid is None or bool(self._valid[row])

    def numpy(self, row: int) -> np.ndarray:
        assert self._flat is not None
        return self._flat[self.offsets[row] : self.offsets[row + 1]]
