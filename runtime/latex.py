"""Tokens to LaTeX that people read."""

from collections.abc import Iterable


def detokenise(tokens: Iterable[str]) -> str:
    r"""Join tokens with a space only where TeX needs one: between a command and a letter.

    >>> detokenise(["\\frac", "{", "\\alpha", "x", "^", "{", "2", "}", "}", "{", "y", "}"])
    '\\frac{\\alpha x^{2}}{y}'
    """
    pieces: list[str] = []
    after_command = False
    for token in tokens:
        if after_command and token[:1].isalpha():
            pieces.append(" ")
        pieces.append(token)
        after_command = token.startswith("\\") and token[-1:].isalpha()
    return "".join(pieces)
