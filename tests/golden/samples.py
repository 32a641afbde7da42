"""Read the golden samples of earlier commits, and compare records with them.

Each folder holds what one commit wrote (`write.py` says how). All are decoded for ever; those of NEWEST are
also what today's code writes, byte for byte. When a format gains a field, the commit that has it gets a
folder and is NEWEST; the older folders stay. Nothing writes a sample again: DIGESTS says what they are."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.golden.commit import Sample, taken_apart

HERE = Path(__file__).parent
NEWEST = "e7b16ea"
DIGESTS = {
    "fbad7ff": "4c6eafc67cf9cd95bfbdf52654d97d5f8628824e55e088fd1a2e01331857d5a6",
    "a708fa3": "e1d1829cdf8a3c132b7e4c3a09ab521e071ff4780e82864c1d7b8fee0dd9761a",
    "0ac402a": "67fda6011c89a1e0f1927b54af2674b101434cf9ac3454fdbafd70aa9aced47f",
    "ac1f33b": "1d1431213cb99bdccf9657544364ffb775906cd2360c6ac7b12df24fbf2fd699",
    "cbc63a5": "e5cdfe0af434fda051c5cdc839dce9ae28378930feff983dca1e87380f1c798a",
    "a9d70cf": "73f555c010b54623cd0be390bde07ac2e95bdf1df9cba2786ed690e2e0c3e0c7",
    "fb20148": "ca9a1584185cfbd41327c8f99a6c08ffdc3799c03616c5e9e27775a2701ffbd7",
    "8d1c780": "e0da3369acb6cf3e56bb2fde20ed774d47c40501ce82ddab837122395c9be02d",
    "61eeb6e": "6b1b61282c3f4b91b6de03ebc59736cb4fb944023467fc013c6612567a141e70",
    "0b6b8ca": "65cc7e7c392a8655b02fb23e00de20540d6049ff65dfdf3f93d1df3b05f6bd66",
    "169234b": "1ff500c127bba8308234da76d8780e2b1e095c522f8b1183a68eb2fe0885d6b3",
    "477034d": "ffa5b47087a5ba4343ecb2449b2610aa9bca2a2f125949f7f686aba478fec124",
    "2a600a4": "65dae51463494a084697b828fb96d2d059bccba27540c252b4894ec59c0ce047",
    "e8158d7": "39dbd507195f07ff09c588e5260d337d4df3b620e73e61f3feecb58a62c175c7",
    "84f437d": "70d65037af594cb8215d4a7ca35025e3bc93a009a44a64788e4b91717df5eca2",
    "733265e": "c74ee2dcc104314135925e1f0b3d4b9ce3fa067733ba7f70e8254c70146b32ec",
    "2ec79fa": "15b3d48f8687dc72ebda35b7c64e5da77aaa60ea20a836d2861057e5b5438d37",
    "6a3c400": "c30205eac5b48f00b0fed772349ae321f418176b5915e2c9d70202e011616e04",
    "91da385": "4b43165a74103a516d1c0fc4f880376e2ea6136d7ae38454c5acdfbeb5ffd9ab",
    "ad3933d": "e9984452582e0fab2c11c35948b2d5ee616bbe134fd4598c09eecaf7940a0fec",
    "f474867": "010f3db371281592bdab114894c083cbdc140417e6da49a98112ed68fe465a10",
    "e7b16ea": "ed013c6597018bc2b9bda00b7b9032577744de49f842db0221037710e2cd0af5",
}
"""SHA-256 over the names and bytes of each folder's files."""


def folder(commit: str) -> Path:
    """Where the samples of a commit are."""
    return HERE / commit


def digest(commit: str) -> str:
    """The digest over all files in a commit's folder."""
    found = hashlib.sha256()
    for path in sorted(each for each in folder(commit).rglob("*") if each.is_file()):
        found.update(f"{path.relative_to(folder(commit))}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def read(name: str, *commits: str) -> list[Sample]:
    """The samples in these files of that name, of all commits unless some are named."""
    found: list[Sample] = []
    for commit in commits or tuple(DIGESTS):
        found += json.loads((folder(commit) / f"{name}.json").read_text())
    return found


def raw(value: Any) -> bytes:
    """Bytes as the samples spell them."""
    return base64.b64decode(value["base64"] if isinstance(value, dict) else value)


def differs(record: Any, values: Sample) -> list[str]:
    """The fields in which a record differs from what the sample states. A field that the sample does not have
    is newer than the sample: it has to have its default."""
    found = taken_apart(record)
    return _differs(type(record).__name__, record, found, values)


def _differs(where: str, record: Any, found: Any, stated: Any) -> list[str]:
    if isinstance(found, dict) and isinstance(stated, dict) and dataclasses.is_dataclass(record):
        lines = [f"{where}.{name}: it has no such field" for name in stated.keys() - found.keys()]
        for field in dataclasses.fields(record):
            place, value = f"{where}.{field.name}", getattr(record, field.name)
            if field.name in stated:
                lines += _differs(place, value, found[field.name], stated[field.name])
            elif value != _default(field):
                lines.append(f"{place}: {value!r} is not in the sample, and no default")
        return lines
    if isinstance(found, list) and isinstance(stated, list) and len(found) == len(stated):
        records = sorted(record) if isinstance(record, frozenset) else record
        pairs = zip(records, found, stated, strict=True)
        return [line for at, each in enumerate(pairs) for line in _differs(f"{where}[{at}]", *each)]
    same = found == stated and type(found) is type(stated)
    return [] if same else [f"{where}: {found!r}, and the sample states {stated!r}"]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
