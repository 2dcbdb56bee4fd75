"""Files in which streams are declared in YAML: read, or refused in the user's words, with the line that is meant."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import dagster as dg
import yaml
from dagster.components.resolved.errors import ResolutionException
from pydantic import ValidationError
from yaml.constructor import ConstructorError

from kafka_assets.assets.component import KafkaTopic, SkipWhenBehind, Slices
from kafka_assets.errors import StreamError
from kafka_assets.streams import unknown_attribute

TYPE = "kafka_assets.KafkaTopic"
_DGS = ("post_processing", "requirements", "template_vars_module")
"""What a `defs.yaml` may say besides, and Dagster's own loader alone reads."""
_PARTS = {"slices": Slices, "skip_when_behind": SkipWhenBehind}
_PLACE = re.compile(r" at <string>:\d+")
_ATTRIBUTE = re.compile(r"^stream '[^']*': (?:the )?(\w+)")
_FIELD = re.compile(r"field '(\w+)' resolving|<string>:\d+ - (\w+)")
_HOW = f"write `type: {TYPE}` and `attributes:` with topic (or topics), target and schema"


def assets_in(path: Path, *, others: bool = False) -> Sequence[dg.AssetsDefinition]:
    """The assets that a YAML file declares, one for each of its documents; `others`: it may hold other components."""
    return [one.asset() for one in _documents(path) if not (others and one.is_other)]


@dataclass(frozen=True)
class _Document:
    """One document of a file, with the places of what stands in it."""

    path: Path
    node: yaml.Node
    given: Any

    @property
    def is_other(self) -> bool:
        return isinstance(self.given, dict) and cast("dict[str, Any]", self.given).get("type", TYPE) != TYPE

    def asset(self) -> dg.AssetsDefinition:
        attributes = self._attributes()
        try:
            with warnings.catch_warnings():
                # Dagster 1.13 validates with a function that pydantic has renamed.
                warnings.filterwarnings("ignore", message="`parse_obj_as` is deprecated", category=DeprecationWarning)
                written = {name: _as_text(value) for name, value in attributes.items()}
                return KafkaTopic.resolve_from_dict(written).asset
        except ValidationError as error:
            raise self._invalid(error, ()) from error
        except ResolutionException as error:
            raise self._unresolved(error) from error
        except (yaml.YAMLError, RecursionError) as error:
            raise self._refused(
                "it cannot be read as a stream",
                why=" ".join(str(error).split())[:500],
                cure="write it out, without references to itself",
            ) from error
        except dg.DagsterInvalidDefinitionError as error:
            raise self._refused(
                "it declares an asset that Dagster does not take",
                why=" ".join(str(error).split())[:500],
                cure="correct the attribute that it speaks of: group_name, pool, tags, or an owner, `team:name` or "
                "an address",
            ) from error
        except StreamError as error:
            named = _ATTRIBUTE.match(error.what)
            at = named[1] if named and named[1] in attributes else ""
            raise self._refused(error.what, at, why=error.why, cure=error.cure) from error

    def _attributes(self) -> Mapping[str, Any]:
        given = cast("dict[str, Any]", self.given) if isinstance(self.given, dict) else {}
        attributes = given.get("attributes")
        if given.get("type") != TYPE or not isinstance(attributes, dict):
            raise self._refused(
                "a document that declares no stream",
                why=f"its type is {given.get('type')!r}" if given.get("type") != TYPE else "it has no attributes",
                cure=_HOW,
            )
        for name in given.keys() - {"type", "attributes"}:
            raise self._refused(
                f"{name!r} stands beside `attributes`, and is not read here",
                root=name,
                why="Dagster's own loader knows it, in a project of dg; this folder's does not"
                if name in _DGS
                else "a stream's file has `type` and `attributes`",
                cure="take it out; what it should change, say in attributes (tags, owners, group_name), or declare the "
                "stream in a project of dg",
            )
        attributes = cast("dict[str, Any]", attributes)
        self._require_once()
        self._require_known(attributes, KafkaTopic, ())
        for part, model in _PARTS.items():
            if isinstance(attributes.get(part), dict):
                self._require_known(attributes[part], model, (part,))
        return attributes

    def _require_once(self) -> None:
        """YAML forbids a name that stands twice; its loader takes the last one without a word."""
        for node in (value for key, value in _pairs(self.node) if key.value == "attributes"):
            names = [key.value for key, _ in _pairs(node)]
            for name in (one for one in names if names.count(one) > 1):
                raise self._refused(f"{name!r} stands here twice", name, cure="take one of them out")

    def _require_known(self, given: Mapping[Any, Any], model: type[dg.Model], inside: tuple[str, ...]) -> None:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        for name in given:
            if name not in fields:
                said = unknown_attribute(str(name), fields, inside=inside)
                raise self._refused(said.what, *inside, str(name), why=said.why, cure=said.cure)
        for name, field in fields.items():
            if field.is_required() and given.get(name) is None:
                missing = ".".join((*inside, name))
                raise self._refused(f"the attribute {missing!r} is missing", *inside, cure=f"write {name}: in it")

    def _unresolved(self, error: ResolutionException) -> StreamError:
        found = _FIELD.search(str(error))
        field = next((one for one in found.groups() if one), "") if found else ""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ValidationError):
                return self._invalid(cause, (field,) if field else ())
            cause = cause.__cause__ or cause.__context__
        last = [line.strip() for line in str(error).splitlines() if line.strip()][-1]
        return self._refused(
            f"{field or 'an attribute'} cannot be read", field, why=last[:500], cure="correct the template in it"
        )

    def _invalid(self, error: ValidationError, inside: tuple[str, ...]) -> StreamError:
        first = error.errors()[0]
        parts = [part for one in first["loc"] for part in _PLACE.sub("", str(one)).split(".")]
        # Dagster names the models and the union's other types between them.
        where = (*inside, *(part for part in parts if re.fullmatch(r"[a-z_]+|\d+", part) and part != "str"))
        named = ".".join(where) or "an attribute"
        return self._refused(
            f"{named}: {first['msg'].removeprefix('Value error, ')}",
            *where,
            why=f"it is {first['input']!r:.200}" if first["type"] != "missing" else "",
            cure=f"correct {named!r}",
        )

    def _refused(self, what: str, *where: str, root: str = "", why: str = "", cure: str) -> StreamError:
        line = self._line((root,) if root else ("attributes", *where))
        return StreamError(f"{self.path}, line {line}: {what}", why=why, cure=cure)

    def _line(self, where: Sequence[str]) -> int:
        """The line of the innermost of these names that stands in the document."""
        node, mark = self.node, self.node.start_mark
        for name in where:
            found = next(((key, value) for key, value in _pairs(node) if key.value == name), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        return mark.line + 1


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value) if isinstance(node, yaml.MappingNode) else []


class _Loader(yaml.SafeLoader):
    """YAML's own loader, but what looks like a date or a number and is none is refused with its place."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return cast("Any", super().construct_object(node, deep))
        except ValueError as error:
            raise ConstructorError(problem=str(error), problem_mark=node.start_mark) from error


def _documents(path: Path) -> Iterator[_Document]:
    try:
        text = path.read_text(encoding="utf-8")
        nodes = list(cast("Iterator[yaml.Node]", yaml.compose_all(text, Loader=yaml.SafeLoader)))
        for node, given in zip(nodes, yaml.load_all(text, Loader=_Loader), strict=True):
            if given is not None:
                yield _Document(path, node, given)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise StreamError(f"{path}{place}: {said}", why="it is no YAML", cure="correct it there, or above") from error
    except OSError as error:
        raise StreamError(f"{path} cannot be read", why=error.strerror or "", cure="give leave to read it") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise StreamError(f"{path} is no YAML", why=" ".join(str(error).split())[:500], cure=_HOW) from error


def _as_text(value: Any) -> Any:
    """YAML makes a date of what reads as one; a stream's `start` is text here, as in JSON."""
    return value.isoformat() if isinstance(value, datetime | date) else value
