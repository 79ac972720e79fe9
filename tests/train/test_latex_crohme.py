"""The normal form against CROHME's own captions: truth annotations must normalise to the labels others train on."""

import html
import re
import tarfile
from pathlib import Path

import pytest

from hmerctl.train.latex import LatexError, normalise, normalise_truth

TRUTH = re.compile(rb'<annotation\s+type="truth"[^>]*>(.*?)</annotation>', re.DOTALL)


def captions(path: Path) -> dict[str, tuple[str, ...]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: tuple(tokens.split()) for name, tokens in (line.split("\t") for line in lines)}


def truths(archive: Path) -> dict[str, str]:
    """The first truth annotation of each ink, which is that of the whole expression."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith(".inkml") and (file := tar.extractfile(member)):
                match = TRUTH.search(file.read())
                if match:
                    found[Path(member.name).stem] = html.unescape(match[1].decode("utf-8", "replace"))
    return found


@pytest.mark.parametrize("name", ["caption_train.txt", "caption_2014.txt"])
def test_captions_are_in_normal_form_but_for_limits(crohme: Path, name: str) -> None:
    for tokens in captions(crohme / name).values():
        assert normalise(tokens) == tuple(token for token in tokens if token != "\\limits")


@pytest.mark.parametrize(
    ("archive", "caption", "different"),
    [
        # One file writes \div where its caption (and its ink) has a slash.
        ("train.tar.xz", "caption_train.txt", {"formulaire012-equation030"}),
        # One truth is beyond repair ("ABOVE {\sqrt} BELOW"), one holds an equals sign as a subscript.
        ("test2014.tar.xz", "caption_2014.txt", {"RIT_2014_309", "RIT_2014_190"}),
    ],
)
def test_truths_normalise_to_the_captions(crohme: Path, archive: str, caption: str, different: set[str]) -> None:
    written = truths(crohme / archive)
    differs = set()
    for name, tokens in captions(crohme / caption).items():
        try:
            if normalise_truth(written[name])[0] != normalise(tokens):
                differs.add(name)
        except LatexError:
            differs.add(name)
    assert differs == different
