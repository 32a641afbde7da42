"""List what the code of a script can reach and change: its variables, and the attributes of its own objects.

Only what the script itself has written is entered: its functions, its modules, objects of its classes, and
plain containers; and what it has put into objects of others, as far as that is known (`others`). What else
torch, other packages and the standard library keep within their objects is theirs."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import queue
import sys
import sysconfig
import threading
from argparse import Namespace
from collections import ChainMap, deque
from pathlib import Path
from types import (
    CodeType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any

import torch

from holdfast.clean.looks import others

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from types import FrameType

OBJECTS_MAX = 20_000
"""Objects that are entered at most. What lies behind them is not looked at."""
ITEMS_MAX = 64
"""Items of one container that are entered at most."""
_FOREIGN = (str(Path(__file__).parents[2]), sysconfig.get_paths()["stdlib"], "site-packages", "dist-packages")
PLAIN = others.PLAIN
OPEN = (SimpleNamespace, Namespace, queue.Queue, threading.local)
"""Classes of the standard library that hold what a script puts there."""
ASKING = frozenset({"steps", "loader", "sampler", "sample_indices", "indices_at", "begin_step"})
"""Attributes by which code asks the session where it is."""
_FACTS = frozenset({"rank", "world_size", "layout", "device", "generation"})
"""Attributes of the session that do not change from step to step."""
_PLACES = frozenset({"step", "data_step"})
"""Attributes that tell where the session is; an object of the script may count its own."""
_OF_CLASSES = (MemberDescriptorType, GetSetDescriptorType, property, classmethod, staticmethod)
"""What classes hold besides functions and values."""
_TAKING = ("LOAD_ATTR", "LOAD_METHOD")
_BASES = (torch.nn.Module, torch.optim.Optimizer)


def reached(
    roots: Iterable[Any],
    skipped: Collection[int],
    variables: Mapping[str, Any] | None = None,
    *,
    foreign: bool = False,
    modules: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Yield each value that these functions or objects can reach, with its name in the script: containers
    before what is in them, each object once; functions, networks and objects of the script in each place.

    `skipped`: the ids of objects that are not entered. `variables`: others that are, by their names.
    `foreign`: enter what others have written, too. `modules`: enter the variables of the modules that
    functions, classes and objects are from, when all else is: two objects may have one name (what two
    functions close over), and the first one of a name is the same with and without."""
    seen = set(skipped)
    pending: deque[tuple[str, Any]] = deque((variables or {}).items())
    beyond: deque[tuple[str, Any]] = deque()
    for root in roots:
        names = getattr(root, "__globals__", {})
        pending += (("", root), *_variables(names))
        seen.add(id(names))
    while (pending or beyond) and len(seen) < OBJECTS_MAX:
        name, value = (pending or beyond).popleft()
        known = id(value) in seen and type(value) not in PLAIN
        if name and (not known or is_chosen(type(value))):
            yield name, value
        if known:
            continue
        seen.add(id(value))
        pending.extend(_within(name, value, foreign=foreign) if type(value) not in PLAIN else ())
        names = _module_of(value) if modules else {}
        if names and id(names) not in seen:
            seen.add(id(names))
            short = names["__name__"].rpartition(".")[2]
            beyond.extend((f"{short}.{each}", item) for each, item in _variables(names))


def is_chosen(kind: type[Any]) -> bool:
    """Whether a script may hold one of several such objects, and choose another one."""
    return kind is FunctionType or issubclass(kind, (type, *_BASES)) or is_scripts(kind.__module__)


def _module_of(value: Any) -> dict[str, Any]:
    """The variables of the module of the script that this function, class or object is from; {}: none is."""
    kind = type(value)
    if kind is ModuleType:
        names = vars(value)
    elif kind is FunctionType:
        names = value.__globals__
    else:
        of_class = value if issubclass(kind, type) else kind
        names = vars(sys.modules[of_class.__module__]) if of_class.__module__ in sys.modules else {}
    return names if is_scripts(names.get("__name__", "")) else {}


def modules_of(things: Iterable[Any]) -> list[ModuleType]:
    """The script that was started, and the modules that these objects are from, as far as they are loaded."""
    names = dict.fromkeys(["__main__", *(str(getattr(each, "__module__", "")) for each in things)])
    return [sys.modules[name] for name in names if name in sys.modules]


def around(things: Iterable[Any]) -> dict[str, Any]:
    """What the code of these objects of a script, and the script that was started, share: the variables of
    their modules, their classes, and what a framework's objects were given to call."""
    every = list(things)
    found: dict[str, Any] = {}
    for module in modules_of(every):
        found |= dict(_variables(vars(module)))
    for each in every:
        found.setdefault(type(each).__name__, type(each))
        own = getattr(each, "__dict__", {}).items()
        found |= {f"{type(each).__name__}.{key}": held for key, held in own if type(held) is FunctionType}
        if not is_scripts(type(each).__module__):
            found |= {key: held for key, held in own if _is_called(held)}
    return found


def _is_called(held: Any) -> bool:
    """Whether a framework that holds this calls it, and it is the script's."""
    kind = type(held)
    return kind in (MethodType, functools.partial) or (is_scripts(kind.__module__) and callable(held))


def is_scripts(module: str) -> bool:
    """Whether the module of this name is a part of the script: neither installed nor Python's own."""
    return _is_scripts(getattr(sys.modules.get(module), "__file__", None) or "")


@functools.cache
def _is_scripts(file: str) -> bool:
    return bool(file) and not any(part in file for part in _FOREIGN)


def _variables(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if is_scripts(names.get("__name__", "")):
        held = ((name, value) for name, value in list(names.items()) if not name.startswith("__"))
        yield from ((name, value) for name, value in held if not _holds_nothing(name, value, names))


def _holds_nothing(name: str, value: Any, names: Mapping[str, Any] | None = None) -> bool:
    """Whether this is a function by its own name that keeps nothing, as most are. `names`: the variables of
    its module; one of another module leads there."""
    if type(value) is not FunctionType or value.__name__ != name:
        return False
    if value.__defaults__ or value.__kwdefaults__ or value.__dict__:
        return False
    closes_over = value.__closure__ is not None and value.__code__.co_freevars != ("__class__",)
    return not closes_over and (names is None or value.__globals__ is names)


def _within(name: str, value: Any, *, foreign: bool) -> Iterator[tuple[str, Any]]:
    """What one value holds, with names. Its type is asked for it, not `isinstance`: that may run its code."""
    kind = type(value)
    if kind is FunctionType:
        yield from _of_function(name, value) if foreign or is_scripts(value.__module__ or "") else ()
    elif kind is GeneratorType:
        yield from _of_frame(name, value)
    elif kind is MethodType:
        yield name or "self", value.__self__
    elif kind is functools.partial:
        parts = ("func", value.func), ("args", value.args), ("keywords", value.keywords)
        yield from ((f"{name}.{each}", item) for each, item in parts)
    elif kind is ModuleType:
        yield from ((f"{name}.{each}", item) for each, item in _variables(vars(value)))
    elif issubclass(kind, dict):
        items = _some(list(dict.copy(value).items()))
        yield from ((f"{name}[{_key(key, at)}]", item) for at, (key, item) in items)
    elif issubclass(kind, list | tuple | deque):
        yield from ((f"{name}[{at}]", item) for at, item in _some(tuple(value)))
    elif issubclass(kind, torch.nn.Module):
        yield from _of_module(name, value)
    elif issubclass(kind, torch.Tensor):
        yield from ((f"{name}.hook", hook) for hook in (value._backward_hooks or {}).values())
        own = ((key, item) for key, item in list(vars(value).items()) if key[0] != "_")
        yield from ((f"{name}.{key}", item) for key, item in own)
    elif issubclass(kind, type):
        yield from _of_class(name, value)
    elif foreign or issubclass(kind, OPEN) or is_scripts(kind.__module__):
        yield from _attributes(name, value)
    else:
        yield from others.held_by(name, value)


def _some(items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Items of a collection with their places: of a long one some at both ends, and others spread over it."""
    count = len(items)
    if count <= ITEMS_MAX:
        yield from enumerate(items)
        return
    ends = ITEMS_MAX // 4
    places = (*range(ends), *range(ends, count - ends, (count - 2 * ends) // (2 * ends) + 1))
    yield from ((at, items[at]) for at in (*places, *range(count - ends, count)))


def _key(key: Any, at: int) -> str:
    return f"{key!r:.40}" if type(key) in PLAIN else str(at)


def _of_function(name: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What it closes over; what was put into its attributes and the defaults of its arguments."""
    inner = getattr(function, "__wrapped__", None)
    if isinstance(inner, FunctionType):
        yield "", inner
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            if free != "__class__":
                yield free, cell.cell_contents
        except ValueError:  # it is empty: nothing was assigned yet
            continue
    name = name or function.__name__
    code, given = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    kept = dict(zip(arguments, given, strict=True)) | (function.__kwdefaults__ or {}) | vars(function)
    own = (each for each in kept if each != "__wrapped__" and not each.startswith("_torchdynamo"))
    yield from ((f"{name}.{each}", kept[each]) for each in own)


def _of_frame(name: str, running: Any) -> Iterator[tuple[str, Any]]:
    """The variables of a generator that is not at its end; of one that asks the session where it is, numbers
    and texts are left out: it is asked again when it is made again."""
    frame = running.gi_frame
    if frame is not None and not frame.f_code.co_filename.startswith(_FOREIGN[0]):
        variables = variables_of(frame)
        left_out = PLAIN if asks_session(frame.f_code, ChainMap(variables, frame.f_globals)) else ()
        held = ((f"{name}.{each}", value) for each, value in variables.items())
        yield from ((each, value) for each, value in held if type(value) not in left_out)


def asks_session(code: CodeType, variables: Mapping[str, Any]) -> bool:
    """Whether this code asks the session where it is: it reads what the session has made, or uses the session
    for more than facts that stay the same. `variables`: those that it has and sees."""
    asks, names = _read_by(code)
    return asks or any(is_sessions(variables.get(name)) for name in names)


def variables_seen(function: FunctionType) -> Mapping[str, Any]:
    """The variables around a function that it may use."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found: dict[str, Any] = {}
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # nothing was assigned yet
            found[name] = cell.cell_contents
    return ChainMap(found, function.__globals__)


def with_held(things: list[Any]) -> list[Any]:
    """Tracked objects and what they hold themselves: what of it is kept is a matter of their `state_dict`."""
    inner = [each for thing in things for each in getattr(thing, "__dict__", {}).values()]
    inner += [each for thing in things for each in _told_by(thing)]
    parts = [part for each in inner if type(each) in (list, tuple) for part in each[:ITEMS_MAX]]
    return [*things, *(each for each in (*inner, *parts) if type(each) not in PLAIN)]


def _told_by(thing: Any) -> Iterator[Any]:
    """Containers and tensors beside an object that its own `state_dict` names: variables around its class."""
    method = getattr(type(thing), "state_dict", None)
    if type(method) is FunctionType and is_scripts(method.__module__ or ""):
        seen = variables_seen(method)
        for name in _read_by(method.__code__)[1] & seen.keys():
            if isinstance(seen[name], dict | list | set | deque | torch.Tensor):
                yield seen[name]


def is_sessions(value: Any) -> bool:
    """Whether the session has made this: a loader, a sampler, its steps."""
    if type(value) is GeneratorType:
        return value.gi_code.co_filename.startswith(_FOREIGN[0])
    return type(value).__module__.startswith("holdfast.") and type(value).__name__ != "Session"


@functools.lru_cache(maxsize=256)
def _read_by(code: CodeType) -> tuple[bool, frozenset[str]]:
    """Whether a code asks the session by an attribute, or uses "session" as it is; and the names in it."""
    names = frozenset({*code.co_names, *code.co_freevars, *code.co_varnames})
    read = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    for at, (does, what) in enumerate(read):
        took, told = read[at + 1] if at + 1 < len(read) else ("", "")
        base = read[at - 1][1] if at else "self"
        if does in _TAKING and (what in ASKING or (what in _PLACES and base != "self")):
            return True, names
        if does.startswith("LOAD") and (what == "session" or (type(what) is tuple and "session" in what)):
            stored = any(next_does == "STORE_ATTR" for next_does, _ in read[at + 1 : at + 3])
            if not stored and not (took in _TAKING and told in _FACTS):
                return True, names
    inner = [_read_by(each) for each in code.co_consts if isinstance(each, CodeType)]
    return any(asks for asks, _ in inner), names.union(*(more for _, more in inner))


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a function that runs or waits.

    Before Python 3.13 a frame keeps those that it has shown. It has to forget them: what the function lets go
    of, as a batch, would live until it shows them again."""
    shown = frame.f_locals
    found = dict(shown)
    if type(shown) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # no class body, whose own it is
        shown.clear()
    return found


def _of_class(name: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """What all objects of a class of the script share."""
    if is_scripts(kind.__module__):
        held = ((key, item) for key, item in dict(vars(kind)).items() if key[:2] != "__")
        kept = ((key, item) for key, item in held if type(item) not in _OF_CLASSES)
        yield from ((f"{name}.{key}", item) for key, item in kept if not _holds_nothing(key, item))


def _of_module(name: str, module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for container in (module._parameters, module._buffers, module._modules):
        yield from ((f"{name}.{key}", value) for key, value in container.items())
    yield from ((f"{name}.{key}", value) for key, value, _ in others.metric_states(module))
    hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_hooks)
    yield from ((f"{name}.hook", hook) for each in hooks for hook in each.values())
    if is_scripts(type(module).__module__):
        yield from _attributes(name, module)
    elif others.has_numbers(type(module)):
        yield from ((f"{name}.{key}", value) for key, value in numbers_of(module))


def hooks_of(name: str, module: torch.nn.Module) -> Iterator[tuple[str, int]]:
    """How many hooks of the script each part of a module has."""
    for path, part in module.named_modules(prefix=name):
        held = (part._forward_pre_hooks, part._forward_hooks, part._backward_pre_hooks, part._backward_hooks)
        hooks = (hook for each in held for hook in each.values())
        yield f"hooks of {path}", sum(is_scripts(getattr(hook, "__module__", None) or "") for hook in hooks)


def numbers_of(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The settings of a module of others (a rate of dropout, a momentum), and what it counts itself."""
    held = ((key, value) for key, value in vars(module).items() if key[0] != "_" and key != "training")
    return ((key, value) for key, value in held if type(value) in (int, float, bool))


def _attributes(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(thing, "__dict__", None)
    base = next((each for each in _BASES if isinstance(thing, each)), None)
    if base is not None and any(getattr(type(thing), each) is not found for each, found in _telling(base)):
        return  # what it holds besides is a matter of its state
    for key, value in list(own.items()) if isinstance(own, dict) else ():
        if base is None or not (key.startswith("_") or key in _OF_BASE):
            yield f"{name}.{key}", value
    for kind in type(thing).__mro__:
        yield from _in_slots(name, thing, kind)
    known: dict[str, Any] = own if isinstance(own, dict) else {}
    for key, value in _given_by_class(type(thing)):
        if key not in known and (base is None or not (key.startswith("_") or key in _OF_BASE)):
            yield f"{name}.{key}", value


def _given_by_class(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Numbers and texts that an object has from its class as long as it has none of its own."""
    held: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if is_scripts(each.__module__):
            held |= vars(each)
    return ((key, value) for key, value in held.items() if type(value) in PLAIN and key[:2] != "__")


def _in_slots(name: str, thing: Any, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """What an object holds in the slots of a class of the script."""
    if not is_scripts(kind.__module__):
        return
    for key, slot in vars(kind).items():
        if type(slot) is MemberDescriptorType:
            with contextlib.suppress(AttributeError):  # it holds nothing yet
                yield f"{name}.{key}", slot.__get__(thing)


def _telling(base: type) -> list[tuple[str, Any]]:
    """The methods of a class of torch that say what is kept."""
    return [(name, vars(base)[name]) for name in ("state_dict", "get_extra_state") if name in vars(base)]


_OF_BASE = frozenset({"training", "defaults", "state", "param_groups", "step"})
"""Attributes that torch's Module and Optimizer keep, besides those with an underscore."""
