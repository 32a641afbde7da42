"""Check objects by Kubernetes' own schemas, strictly: an unknown field is an error. Each schema is read
once.

jsonschema is imported where it is used: with the formats that `supply/` asks for, that compiles 38 grammars,
five seconds of CPU for every process that only collects the tests."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from kubernetes_validate import utils
from referencing import Registry, Resource


@cache
def _contents(folder: str, name: str) -> Any:
    return utils.schema_contents(f"kubernetes-json-schema/{folder}/{name}.json", folder)


@cache
def _validator(kind: str, api: str, version: str) -> Any:
    import jsonschema

    folder = f"v{version}-local-strict"
    name = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    registry: Any = Resource.from_contents(_contents(folder, "_definitions")) @ Registry()
    schema = _contents(folder, f"{kind.lower()}-{name}")
    registry = Resource.from_contents(schema) @ registry
    return jsonschema.Draft202012Validator(schema, registry=registry)


def check(manifest: dict[str, Any], version: str) -> None:
    """Raise jsonschema.ValidationError, or FileNotFoundError for a kind that this version does not have."""
    _validator(manifest["kind"], manifest["apiVersion"], version).validate(manifest)


def check_options(options: dict[str, Any], version: str) -> None:
    """The same for the options of a DELETE."""
    _validator("DeleteOptions", "meta/v1", version).validate(options)
