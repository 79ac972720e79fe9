"""The pages keep their word: links lead somewhere, and the commands they show exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from hmerctl.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [
    path
    for folder in ("hmerctl", "targets", "export", "train", "runtime", "scripts", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
OTHERS = {"docs/operators.md", "docs/Changelog.md"}
"""Pages of other projects that ours name."""

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND_LINE = re.compile(r"^(?:\$ )?(hmerctl(?: .*)?)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a heading of a page is called in a link, as GitHub has it."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_pages_of_a_project_are_here() -> None:
    names = {name_of(page) for page in PAGES}
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/model-card.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_pages_named_in_the_code_exist(source: Path) -> None:
    named = set(re.findall(r"(?<![\w/.-])docs/[\w/-]+\.md", source.read_text(encoding="utf-8")))
    assert all((ROOT / page).is_file() for page in named - OTHERS)


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Every command line of a page, and whether it is complete: shown as typed, not as a pattern or in passing."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for block in FENCE.findall(text):
        for line in COMMAND_LINE.findall(block):
            yield line, "..." not in line and "[" not in line
    for code in re.findall(r"`(hmerctl(?: (?!->)[^`]*)?)`", FENCE.sub("", text)):
        yield code, False


def parse(line: str) -> tuple[Any, list[str]]:
    """The command that a line calls and its words.

    Raises:
        LookupError: a word where a command must stand is none.
    """
    words = shlex.split(re.split(r" [|>&;] ?", line)[0].translate({ord("["): " ", ord("]"): " "}), comments=True)[1:]
    command: Any = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and words and words[0] not in ("-h", "--help", "--version"):
        if words[0] in command.commands:
            command = command.commands[words.pop(0)]
        elif "run" in command.commands:  # may be left out, see DefaultRun
            command = command.commands["run"]
        else:
            raise LookupError(words[0])
    return command, [word for word in words if word != "..."]


def options(command: Any) -> set[str]:
    named = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return named | {"--help", "-h"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist_with_their_options(page: Path) -> None:
    for line, complete in commands(page):
        command, words = parse(line)
        unknown = {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)} - options(command)
        assert not unknown, line
        if complete and not isinstance(command, TyperGroup):
            command.make_context(line, words)  # refuses what the command would refuse: arguments, kinds, ranges


@pytest.mark.parametrize(
    "line", ["hmerctl teach --out x", "hmerctl data bake", "hmerctl data prepare --inks x", "hmerctl export --bits 8"]
)
def test_a_wrong_command_is_found(line: str) -> None:
    try:
        command, words = parse(line)
    except LookupError:
        return
    assert any(word.startswith("--") and word not in options(command) for word in words)


def test_the_readme_shows_every_command() -> None:
    shown = {line.split()[1] for line, _ in commands(ROOT / "README.md") if len(line.split()) > 1}
    every: Any = typer.main.get_command(app)
    assert set(every.commands) <= shown
