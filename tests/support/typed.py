"""What a type checker cannot know of a part of a module, checked and so told."""

from typing import TypeVar

T = TypeVar("T")


def as_a(kind: type[T], value: object) -> T:
    """The value itself, which must be of this class."""
    assert isinstance(value, kind), f"{value!r} is no {kind.__name__}"
    return value
