"""From InkML or pictures, with or without captions, to a dataset folder; and from several datasets to one.

One bad file is one failed item. Whatever was repaired, skipped or only odd stands in the report, by id: nothing is
dropped in silence.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from hmerctl.runtime.errors import DataError, HmerError
from hmerctl.runtime.files import png
from hmerctl.runtime.inkml import read_inkml
from hmerctl.runtime.picture import WORK_PIXELS, rasterise_picture, read_grey
from hmerctl.runtime.resample import reduce
from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.archives import SourceFile, read_files
from hmerctl.train.captions import Caption, read_captions
from hmerctl.train.dataset import Expression, ExpressionDataset, Origin, check_replaceable, write_dataset
from hmerctl.train.latex import LatexError, normalise, normalise_truth
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.symbols import name_symbols

INK_SUFFIXES = frozenset({".inkml"})
PICTURE_SUFFIXES = frozenset({".bmp", ".png", ".jpg", ".jpeg", ".webp"})

LONGEST_LABEL = MAX_STEPS - 2
"""Tokens in the longest label that the decoder can be taught and can say: sos and eos take a step each."""

Watch = Callable[[Iterable[SourceFile]], Iterable[SourceFile]]
"""Passes the files on and may show progress."""


@dataclass
class Skipped:
    """Something that did not get into the dataset, and why.

    Attributes:
        id: of the expression.
        reason: ``unreadable`` (no ink, no picture), ``refused`` (unsafe or too large), ``duplicate`` (of a stem),
            ``no-caption``, ``no-truth``, ``bad-label`` (empty or malformed), ``unknown-token``, ``blank-picture``.
        detail: the whole story in one line.
    """

    id: str
    reason: str
    detail: str


@dataclass
class Report:
    """What became of every file; stands in ``dataset.json``.

    Attributes:
        sources: folders, archives or datasets that were read.
        captions: the caption file, or None if labels come from the truth annotations.
        read: files (of a merge: expressions) looked at.
        written: expressions in the dataset.
        repaired: ids by what was repaired in them: keys of ``Ink.notes``, and repairs of the truth; files that were
            skipped for their label afterwards are among them.
        skipped: what was read and not written.
        other_files: number of files passed over for their suffix, by suffix.
        captions_without_file: ids that only the caption file has.
        long_labels: number of tokens by id, of labels written though no decoder can say them in ``MAX_STEPS``.
        unknown_tokens: how many expressions were skipped for each token that the vocabulary lacks.
        with_symbols: expressions with symbol groups.
        symbols_match: those whose groups are exactly the symbols of the label.
    """

    sources: list[str]
    captions: str | None = None
    read: int = 0
    written: int = 0
    repaired: dict[str, list[str]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    other_files: dict[str, int] = field(default_factory=dict)
    captions_without_file: list[str] = field(default_factory=list)
    long_labels: dict[str, int] = field(default_factory=dict)
    unknown_tokens: dict[str, int] = field(default_factory=dict)
    with_symbols: int = 0
    symbols_match: int = 0

    def skip(self, name: str, reason: str, detail: object) -> None:
        self.skipped.append(Skipped(name, reason, " ".join(str(detail).split())))

    def repair(self, name: str, notes: Iterable[str]) -> None:
        for note in notes:
            self.repaired.setdefault(note, []).append(name)

    def accept(self, expression: Expression) -> None:
        """Count an expression that is written."""
        self.written += 1
        self.with_symbols += expression.symbols_match is not None
        self.symbols_match += expression.symbols_match is True
        if len(expression.tokens) > LONGEST_LABEL:
            self.long_labels[expression.id] = len(expression.tokens)


class _UnusableError(Exception):
    """One file cannot become an expression: reason, detail."""


@dataclass
class _Labels:
    """Where labels come from, and which tokens they may have."""

    captions: dict[str, Caption] | None
    vocabulary: Vocabulary
    report: Report

    def find(self, name: str, truth: str | None) -> tuple[str, ...]:
        """The label of a file, normalised, all tokens in the vocabulary."""
        try:
            tokens = self._from_truth(name, truth) if self.captions is None else self._from_caption(name)
        except LatexError as error:
            where = f"truth {truth!r}" if self.captions is None else self.captions[name].where
            raise _UnusableError("bad-label", f"{where}: {error}") from error
        if not tokens:
            raise _UnusableError("bad-label", "the label is empty")
        unknown = sorted({t for t in tokens if t not in self.vocabulary.ids})
        if unknown:
            counts = self.report.unknown_tokens
            counts.update({t: counts.get(t, 0) + 1 for t in unknown})
            raise _UnusableError("unknown-token", f"not in the vocabulary: {' '.join(unknown)}")
        return tokens

    def _from_caption(self, name: str) -> tuple[str, ...]:
        assert self.captions is not None
        if name not in self.captions:
            raise _UnusableError("no-caption", f"{self.report.captions} has no line for it")
        return normalise(self.captions[name].text)

    def _from_truth(self, name: str, truth: str | None) -> tuple[str, ...]:
        if truth is None:
            raise _UnusableError("no-truth", "the file has no truth annotation; give --captions")
        tokens, repairs = normalise_truth(truth)
        self.report.repair(name, (f"truth: {repair}" for repair in repairs))
        return tokens


def prepare_ink(
    source: Path,
    captions: Path | None,
    out: Path,
    vocabulary: Vocabulary = CROHME,
    watch: Watch = iter,
    origin: Origin | None = None,
) -> Report:
    """Make a dataset of InkML files.

    Args:
        source: folder or archive.
        captions: ``id TAB label`` lines; None takes the labels from the truth annotations.
        out: the dataset folder.
        vocabulary: expressions whose label has other tokens are skipped.
        watch: see ``Watch``.
        origin: what the expressions are, for checkpoints and model cards.

    Raises:
        DataError: a source or the captions cannot be read, ``out`` holds something else, or nothing was usable.
    """
    report, labels = _start(source, captions, out, vocabulary)

    def convert(file: SourceFile, data: bytes) -> Expression:
        ink = read_inkml(data, file.stem)
        report.repair(file.stem, ink.notes)
        tokens = labels.find(file.stem, ink.truth)
        ink, match = name_symbols(ink, tokens)
        return Expression(file.stem, tokens, ink, symbols_match=match)

    files = watch(read_files(source, INK_SUFFIXES))
    return _write(out, _expressions(files, convert, report), labels, origin)


def prepare_pictures(
    source: Path,
    captions: Path,
    out: Path,
    vocabulary: Vocabulary = CROHME,
    watch: Watch = iter,
    origin: Origin | None = None,
) -> Report:
    """Make a dataset of pictures. Arguments and errors as for inks.

    Each is kept as grey PNG, reduced only where it has more pixels than any raster contract looks at: what is read in
    it is what is read in its file, bit for bit.
    """
    report, labels = _start(source, captions, out, vocabulary)

    def convert(file: SourceFile, data: bytes) -> Expression:
        tokens = labels.find(file.stem, None)
        grey, _ = reduce(read_grey(data), WORK_PIXELS)
        image = Image.fromarray(grey)
        raster = rasterise_picture(image)
        if raster.blank:
            raise _UnusableError("blank-picture", raster.blank)
        return Expression(file.stem, tokens, picture=png(image))

    files = watch(read_files(source, PICTURE_SUFFIXES))
    return _write(out, _expressions(files, convert, report), labels, origin)


def merge_datasets(sources: list[Path], out: Path) -> Report:
    """Put several datasets into one, in order; of expressions with the same id the first is kept, of origins all.

    Raises:
        DataError: a source is no dataset, or ``out`` holds something else.
    """
    check_replaceable(out)
    datasets = [ExpressionDataset(source) for source in sources]
    report = Report([str(source) for source in sources])

    def expressions() -> Iterator[Expression]:
        seen: set[str] = set()
        for dataset in datasets:
            for expression in dataset:
                report.read += 1
                if expression.id in seen:
                    report.skip(expression.id, "duplicate", f"comes again in {dataset.path}")
                    continue
                seen.add(expression.id)
                report.accept(expression)
                yield expression

    write_dataset(out, expressions(), report, (origin for dataset in datasets for origin in dataset.origins))
    return report


def _start(source: Path, captions: Path | None, out: Path, vocabulary: Vocabulary) -> tuple[Report, _Labels]:
    check_replaceable(out)
    report = Report([str(source)], None if captions is None else str(captions))
    return report, _Labels(None if captions is None else read_captions(captions), vocabulary, report)


def _expressions(
    files: Iterable[SourceFile], convert: Callable[[SourceFile, bytes], Expression], report: Report
) -> Iterator[Expression]:
    """The expressions of all usable files; the others go to the report."""
    seen: set[str] = set()
    for file in files:
        if file.data is None and file.refused is None:
            suffix = file.suffix or "(none)"
            report.other_files[suffix] = report.other_files.get(suffix, 0) + 1
            continue
        report.read += 1
        if file.stem in seen:
            report.skip(file.stem, "duplicate", f"{file.name}: another file has this stem")
            continue
        seen.add(file.stem)
        try:
            if file.data is None:
                raise _UnusableError("refused", f"{file.name}: {file.refused}")
            expression = convert(file, file.data)
        except _UnusableError as error:
            report.skip(file.stem, *error.args)
        except HmerError as error:
            report.skip(file.stem, "unreadable", error)
        else:
            report.accept(expression)
            yield expression


def _write(out: Path, expressions: Iterator[Expression], labels: _Labels, origin: Origin | None) -> Report:
    """Write the dataset and its report; an error leaves whatever was at ``out``."""
    report = labels.report
    written: set[str] = set()

    def watched() -> Iterator[Expression]:
        for expression in expressions:
            written.add(expression.id)
            yield expression
        known = written | {item.id for item in report.skipped}
        report.captions_without_file = [name for name in labels.captions or () if name not in known]
        if not report.read:
            raise DataError(f"{report.sources[0]}: nothing to read; other files: {_others(report)}")
        if not written:
            first = report.skipped[0]
            raise DataError(
                f"{report.sources[0]}: not one of {report.read} files is usable; {first.id}: {first.detail}"
            )

    write_dataset(out, watched(), report, [origin] if origin else ())
    return report


def _others(report: Report) -> str:
    return ", ".join(f"{count} {suffix}" for suffix, count in sorted(report.other_files.items())) or "none"
