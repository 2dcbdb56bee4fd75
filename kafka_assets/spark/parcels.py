"""A user's functions on their way to Spark's workers, with what of the project they need.

Spark pickles a function by the name of its module, and a worker has none of the project's: it would fail there with
ModuleNotFoundError. So what a query carries of the project is

- of a module that declares streams or assets, the functions and classes themselves, with the globals that they name;
- of every other module its text: the worker imports it as any other, so that a lock, a cache, a connection at its top
  is the worker's own.

It is part of the query, and not an artifact of the session: with artifacts each session would have Python workers of
its own, which stay behind (4.2.0).
"""

from __future__ import annotations

import functools
import io
import json
import os
import sys
import threading
import uuid
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.serializers import CloudPickleSerializer

from kafka_assets.errors import StreamError
from kafka_assets.spark import project_modules
from kafka_assets.spark.project_modules import Source

_CACHED: Any = type(functools.lru_cache(len))
_registry: Any = cloudpickle
"""Its types tell little of what it takes by value."""
_lock = threading.RLock()
"""What is registered with cloudpickle is the whole process's."""
_plain: Any = cast(Any, CloudPickleSerializer).dumps


def install() -> None:
    """From here on functions that this process hands to Spark travel so; it does nothing a second time."""
    CloudPickleSerializer.dumps = _dumps  # type: ignore[method-assign]


def packed(thing: Any) -> bytes:
    """The thing as workers can load it; raises `StreamError` where something in it cannot travel."""
    with _lock, io.BytesIO() as file:
        pickler = _Pickler(file)
        try:
            with pickler.by_value():
                pickler.dump(thing)
        except Exception as error:
            raise _refused(pickler.functions, error) from error
        inner = file.getvalue()
    texts = project_modules.sources(pickler.met)
    return cloudpickle.dumps(_Parcel(texts, inner)) if texts else inner


def _dumps(self: CloudPickleSerializer, obj: Any) -> bytes:
    try:
        return packed(obj)
    except _NotTheProjects:
        return _plain(self, obj)  # it fails again, in Spark's own words


class _NotTheProjects(Exception):
    """What could not be pickled has nothing of the project in it."""


class _Pickler(cloudpickle.Pickler):
    """Cloudpickle's own, which notes what it meets of the project, and takes by value what workers cannot import."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.met: set[str] = set()
        """Modules of the project."""
        self.functions: list[FunctionType] = []
        """Functions that go by value, in the order in which they were met."""
        self._registered: list[ModuleType] = []
        self._known: dict[str, bool] = {}
        """Of modules whether they go by value."""

    @contextmanager
    def by_value(self) -> Generator[None]:
        """Within it modules are registered with cloudpickle, and none is afterwards that was not before."""
        try:
            yield
        finally:
            for module in self._registered:
                _registry.unregister_pickle_by_value(module)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (FunctionType, type, ModuleType, _CACHED)):
            name: Any = getattr(obj, "__name__" if isinstance(obj, ModuleType) else "__module__", None)
            if isinstance(name, str) and self._goes_by_value(name):
                if isinstance(obj, FunctionType):
                    self.functions.append(obj)
                if isinstance(obj, _CACHED):  # by itself it would be taken by its name
                    cache = cast(Any, obj)
                    return _cached(), (cache.__wrapped__, cache.cache_parameters())
        return cast(Any, super()).reducer_override(obj)

    def _goes_by_value(self, name: str) -> bool:
        if name not in self._known:
            self._known[name] = self._met(name)
        return self._known[name]

    def _met(self, name: str) -> bool:
        if not project_modules.is_the_projects(name):
            return False
        self.met.add(name)
        if project_modules.is_importable_there(name):
            return False
        module = sys.modules.get(name)
        if module is not None and module.__name__ not in _registry.list_registry_pickle_by_value():
            _registry.register_pickle_by_value(module)
            self._registered.append(module)
        return True


class _Parcel:
    """The texts of modules, and what needs them: loaded, it is that."""

    def __init__(self, texts: Mapping[str, Source], inner: bytes) -> None:
        self.texts = zlib.compress(json.dumps({name: asdict(one) for name, one in texts.items()}).encode())
        self.inner = inner

    def __reduce__(self) -> tuple[Any, ...]:
        return _opening(), (_sender(os.getpid()), self.texts, self.inner)


@functools.lru_cache
def _sender(pid: int) -> str:
    """This process, told from all others, its forks too: what it sent is none of theirs."""
    return f"{pid}-{uuid.uuid4().hex}"


def _opening() -> Callable[[str, bytes, bytes], Any]:
    """What a worker does with a parcel. It knows nothing of this module: what is used is imported within."""

    def opened(sender: str, packed: bytes, inner: bytes) -> Any:
        import importlib.abc
        import importlib.util
        import json
        import pickle
        import sys
        import zlib

        texts = json.loads(zlib.decompress(packed))

        class KafkaAssetsProject(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
            def __init__(self) -> None:
                self.sender, self.texts = sender, dict[str, Any]()

            def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
                there = self.texts.get(fullname)
                if there is None:
                    return None
                return importlib.util.spec_from_loader(fullname, self, is_package=there["package"])

            def get_source(self, fullname: str) -> str:  # tracebacks show its lines
                return self.texts[fullname]["text"]

            def is_package(self, fullname: str) -> bool:
                return self.texts[fullname]["package"]

            def exec_module(self, module: Any) -> None:
                there = self.texts[module.__name__]
                module.__file__ = there["path"]
                exec(compile(there["text"], there["path"], "exec"), module.__dict__)

        kind = KafkaAssetsProject.__name__
        held: Any = next((one for one in sys.meta_path if type(one).__name__ == kind), None)
        # A worker serves many runs: of another one's project, or of this one's as it was, nothing may be left.
        stale = held is not None and (
            held.sender != sender or any(held.texts.get(name, text) != text for name, text in texts.items())
        )
        if held is None or stale:
            finder: Any = KafkaAssetsProject()
            for name in [*(held.texts if held else ()), *texts]:
                sys.modules.pop(name, None)
            sys.meta_path[:] = [finder, *(one for one in sys.meta_path if one is not held)]
            held = finder
        for name in texts.keys() - held.texts.keys():
            sys.modules.pop(name, None)  # an installed one of this name
        held.texts.update(texts)
        return pickle.loads(inner)

    return opened


def _cached() -> Callable[[Any, Mapping[str, Any]], Any]:
    """How a function with a cache is made on a worker: it gets a cache of its own."""

    def cached(function: Any, parameters: Mapping[str, Any]) -> Any:
        import functools

        return functools.lru_cache(**parameters)(function)

    return cached


def _refused(functions: list[FunctionType], error: Exception) -> Exception:
    """Which of the globals that these functions name cannot travel, in words."""
    for function in reversed(functions):
        for name, kept in _used(function):
            why = _unpicklable(kept)
            if why is not None:
                place = project_modules.path_of(function.__module__)
                return StreamError(
                    f"{place}: {function.__qualname__} cannot go to Spark's workers",
                    why=f"it uses {name}, and {_a(kept)} cannot be sent: {why}",
                    cure=f"make {name} inside the function; or write both in a module beside that imports neither "
                    "kafka_assets nor Dagster: workers import that one, and make their own",
                )
    if not functions:
        return _NotTheProjects()
    last = functions[-1]
    return StreamError(
        f"{project_modules.path_of(last.__module__)}: {last.__qualname__} cannot go to Spark's workers",
        why=f"it cannot be pickled: {type(error).__name__}: {error}",
        cure="let it use what it makes itself, or what a module beside makes that imports neither kafka_assets nor "
        "Dagster",
    )


def _unpicklable(thing: Any) -> str | None:
    if isinstance(thing, FunctionType):
        return None  # it stands among the functions itself
    try:
        with io.BytesIO() as file:
            pickler = _Pickler(file)
            with pickler.by_value():
                pickler.dump(thing)
    except Exception as error:  # noqa: BLE001 - what pickling raises is the object's own
        return f"{error}"
    return None


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function takes from its module, and from the function in which it stands, by name."""
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has no value yet
            yield name, cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    """The global names in a function's code, and in that of the functions in it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _a(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return f"the module {thing.__name__}"
    kind = cast("type[Any]", type(thing))
    return f"an object of {kind.__module__.lstrip('_')}.{kind.__name__}"
