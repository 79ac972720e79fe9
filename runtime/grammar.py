r"""Which token may follow which: balanced braces, complete arguments of ``\frac`` and ``\sqrt``, single scripts.

The same small automaton judges finished sequences (``malformed``) and, during decoding, masks tokens that could no
longer lead to LaTeX that compiles (``GrammarConstraint``). It knows the normal form of the labels: arguments and
scripts are always braced and never empty.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hmerctl.runtime.vocabulary import EOS, SPECIAL_TOKENS, Vocabulary

Kind = Literal["{", "}", "[", "]", "^", "_", "frac", "sqrt", "limits", "symbol"]

_KINDS: dict[str, Kind] = {
    "{": "{",
    "}": "}",
    "[": "[",
    "]": "]",
    "^": "^",
    "_": "_",
    "\\frac": "frac",
    "\\sqrt": "sqrt",
    "\\limits": "limits",
}


@dataclass(frozen=True)
class Frame:
    """An open brace or root index.

    Attributes:
        close: the token that ends it.
        arguments: how many arguments the command still needs after this one.
        scripts: the scripts that the base outside already has, e.g. ``"^"``.
    """

    close: Literal["}", "]"]
    arguments: int
    scripts: str


@dataclass(frozen=True)
class GrammarState:
    """What matters of a prefix.

    Attributes:
        stack: open frames, the innermost last.
        arguments: arguments that must come before anything else.
        index: an index in brackets may come first.
        scripts: scripts of the symbol before, at this level; ``"^_"`` allows none.
        empty: nothing stands in the innermost frame yet.
    """

    stack: tuple[Frame, ...] = ()
    arguments: int = 0
    index: bool = False
    scripts: str = ""
    empty: bool = False

    @property
    def complete(self) -> bool:
        """Whether the sequence may end here."""
        return not self.stack and not self.arguments


def kind_of(token: str) -> Kind:
    """The token's part in the structure."""
    return _KINDS.get(token, "symbol")


def fault(state: GrammarState, kind: Kind) -> str | None:
    """Why a token of this kind cannot come next, or None if it can."""
    if state.arguments and kind != "{" and not (state.index and kind == "["):
        return "an argument in braces is missing"
    if kind in ("^", "_") and kind in state.scripts:
        return f"a second {kind} on one symbol"
    if kind == "}":
        if not state.stack:
            return "a brace closes that was never opened"
        if state.stack[-1].close != "}":
            return "a brace closes inside the index of a root"
    if state.empty and (kind == "}" or (kind == "]" and state.stack[-1].close == "]")):
        return "an argument is empty"
    return None


def advance(state: GrammarState, kind: Kind) -> GrammarState:
    """The state after a token for which ``fault`` is None."""
    if kind == "{":
        frame = Frame("}", max(state.arguments - 1, 0), state.scripts if state.arguments else "")
        return GrammarState((*state.stack, frame), empty=True)
    if kind == "[" and state.index:
        return GrammarState((*state.stack, Frame("]", 1, "")), empty=True)
    if state.stack and kind == state.stack[-1].close:
        frame = state.stack[-1]
        return GrammarState(state.stack[:-1], arguments=frame.arguments, scripts=frame.scripts)
    if kind in ("^", "_"):
        return GrammarState(state.stack, arguments=1, scripts=state.scripts + kind)
    if kind == "limits":
        return replace(state, empty=False)
    arguments = {"frac": 2, "sqrt": 1}.get(kind, 0)
    return GrammarState(state.stack, arguments=arguments, index=kind == "sqrt")


def malformed(tokens: tuple[str, ...] | list[str]) -> str | None:
    """Why a sequence of tokens is not well-formed LaTeX, or None if it is.

    >>> malformed(["\\frac", "{", "a", "}"])
    'an argument in braces is missing'
    """
    state = GrammarState()
    for token in tokens:
        kind = kind_of(token)
        reason = fault(state, kind)
        if reason:
            return reason
        state = advance(state, kind)
    if state.complete:
        return None
    return "an argument in braces is missing" if state.arguments else "a brace or bracket is left open"


class GrammarConstraint:
    """Decoding constraint (``hmerctl.runtime.decode.Constraint``): only tokens that keep the LaTeX well-formed."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._kinds = [kind_of(token) for token in vocabulary.tokens]
        self._masks: dict[tuple[object, ...], np.ndarray] = {}

    def start(self) -> GrammarState:
        """The state of the empty prefix."""
        return GrammarState()

    def allowed(self, state: GrammarState) -> np.ndarray:
        """bool (vocabulary,): ids that may come next; never all False."""
        close = state.stack[-1].close if state.stack else None
        key = (close, bool(state.arguments), state.index, state.scripts, state.empty)
        if key not in self._masks:
            mask = np.zeros(len(self._kinds) + len(SPECIAL_TOKENS), bool)
            mask[EOS] = state.complete
            mask[len(SPECIAL_TOKENS) :] = [fault(state, kind) is None for kind in self._kinds]
            self._masks[key] = mask
        return self._masks[key]

    def advance(self, state: GrammarState, token: int) -> GrammarState:
        """The state after an allowed id other than eos."""
        return advance(state, self._kinds[token - len(SPECIAL_TOKENS)])
