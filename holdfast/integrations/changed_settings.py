"""Keep what a script changes in a framework's own objects while it trains: arguments, options of a trainer.

Theory of operation. Such an object has many attributes that the framework makes and never changes. What
differs from what was there before the first step, in the same process, is what the script has changed. Only
that is kept: places, devices and paths that differ between processes stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clean.looks.reach import reached
from holdfast.integrations import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Changed = list[dict[str, Any]]
"""What has changed, of each object: its attributes (of a dictionary: its items) by name."""
_SIMPLE = (bool, int, float, str, type(None))


class FirstValue(NamedTuple):
    """A setting before the first step. `is_plain`: it is plain data; other settings are left alone."""

    is_plain: bool
    value: Any


class ChangedSettings:
    """The public plain settings of some objects. `owners()`: always as many, in one order; None: there is
    none in this place. `but`: names of what the framework itself changes."""

    def __init__(self, owners: Callable[[], list[Any]], but: frozenset[str] = frozenset()) -> None:
        self._owners, self._but = owners, but
        self._first: list[dict[str, FirstValue]] = []

    def begin(self) -> None:
        """They are now as framework and script have made them before the first step."""
        self._first = [
            {name: FirstValue(_is_plain(value), _kept(value)) for name, value in self._settings(owner)}
            for owner in self._owners()
        ]

    def named(self, *names: str) -> Iterator[tuple[str, Any]]:
        """The settings as they are, each after the name of its owner, and what is in them."""
        for name, owner in zip(names, self._owners(), strict=True):
            settings = {f"{name}.{key}": _without_class(value) for key, value in self._settings(owner)}
            yield from reached((), (), {key: value for key, value in settings.items() if _is_plain(value)})

    def capture(self) -> Changed:
        """What differs from then."""
        return [dict(self._changed(owner, first)) for owner, first in self._pairs()]

    def apply(self, changed: Changed) -> None:
        """Make them what they were then, but for these changes. []: without any."""
        for index, (owner, first) in enumerate(self._pairs()):
            wanted = changed[index] if index < len(changed) else {}
            for name, _ in list(self._changed(owner, first)):
                if name in first:
                    _set(owner, name, _kept(first[name].value))
                elif name not in wanted:
                    _remove(owner, name)
            for name, value in wanted.items():
                _set(owner, name, plain.copied(value))

    def _pairs(self) -> Iterator[tuple[Any, dict[str, FirstValue]]]:
        return zip(self._owners(), self._first, strict=False)  # none before `begin`

    def _changed(self, owner: Any, first: dict[str, FirstValue]) -> Iterator[tuple[str, Any]]:
        for name, value in self._settings(owner):
            was = first.get(name)
            if was is not None and (not was.is_plain or _is_same(was.value, value)):
                continue
            if _is_plain(value):
                yield name, plain.copied(_without_class(value))

    def _settings(self, owner: Any) -> Iterator[tuple[str, Any]]:
        held = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
        for name, value in list(held.items()):
            if isinstance(name, str) and not name.startswith("_") and name not in self._but:
                yield name, value


def _is_plain(value: Any) -> bool:
    return type(value) in _SIMPLE or plain.is_plain(_without_class(value))


def _is_same(was: Any, now: Any) -> bool:
    """Whether a setting is as it was. Long ones (the names of labels) are compared in each step."""
    was, now = _without_class(was), _without_class(now)
    if was is now and type(now) in _SIMPLE:
        return True
    if type(was) is not type(now):
        return False
    if type(now) in _SIMPLE:
        return repr(was) == repr(now)
    try:
        return bool(was == now)
    except (RuntimeError, ValueError):  # there are tensors in it
        return plain.is_plain(now) and plain.dumps(was, "setting") == plain.dumps(now, "setting")


def _without_class(value: Any) -> Any:
    """A text of a class of its own (an enumeration) as a text."""
    return str.__str__(value) if isinstance(value, str) else value


def _kept(value: Any) -> Any:
    """A value as it is, but for collections, which may be changed: a copy of them."""
    return plain.copied(value) if isinstance(value, dict | list) and plain.is_plain(value) else value


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def _remove(owner: Any, name: str) -> None:
    if isinstance(owner, dict):
        del owner[name]
    else:
        delattr(owner, name)
