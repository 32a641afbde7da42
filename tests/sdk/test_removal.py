"""Nothing that is not ours is deleted: not on a storage, not in the folders of nodes and runs."""

from __future__ import annotations

import errno
import os
import re
import resource
import time
from typing import TYPE_CHECKING

import pytest

from holdfast import removal
from holdfast.checkpoint.errors import StorageError
from holdfast.checkpoint.format import names
from holdfast.checkpoint.storage.store import Store

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3600
KNOWN = re.compile(r"[a-z]+\.[0-9]+\.json")


def aged(path: Path, age_s: float = 2 * HOUR_S) -> Path:
    """A file of a user's, so old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"precious")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_first_save_deletes_nothing_of_the_users(folder: Path) -> None:
    storage, elsewhere = folder / "storage", folder / "elsewhere"
    hexadecimal = "0123456789abcdef" * 2
    kept = [aged(storage / "tmp" / name) for name in ("thesis.tex", hexadecimal, f".{hexadecimal}")]
    kept += [aged(elsewhere / name) for name in (removal.draft_name(), "notes")]
    kept += [aged(storage / "holdfast-drafts" / name) for name in ("notes", hexadecimal)]
    old = aged(storage / "holdfast-drafts" / removal.draft_name())
    new = aged(storage / "holdfast-drafts" / removal.draft_name(), 60)
    linked = storage / "holdfast-drafts" / removal.draft_name()
    linked.symlink_to(kept[0])
    store = Store.open(f"file://{storage}")
    assert store.put(names.manifest("job", "1-1"), b"1")
    assert [path for path in kept if not path.exists()] == []
    assert (old.exists(), new.exists(), linked.is_symlink()) == (False, True, True)


def test_a_link_in_the_place_of_the_drafts_is_not_followed(folder: Path) -> None:
    storage, elsewhere = folder / "storage", folder / "elsewhere"
    draft = aged(elsewhere / removal.draft_name())
    storage.mkdir()
    (storage / "holdfast-drafts").symlink_to(elsewhere)
    store = Store.open(f"file://{storage}")
    with pytest.raises(StorageError, match="the folder for drafts is a link"):
        store.put(names.manifest("job", "1-1"), b"1")
    assert store.sweep(0) == 0
    assert os.listdir(elsewhere) == [draft.name]


@pytest.mark.parametrize("url", ["file://{}", "memory:/{}"])
@pytest.mark.parametrize(
    "name", ["notes", "tmp/notes", "jobs/job/notes", "jobs/job/manifests/notes.json", "jobs/job/leases/notes"]
)
def test_a_storage_deletes_no_name_that_is_not_ours(folder: Path, url: str, name: str) -> None:
    store = Store.open(url.format(folder))
    store.put(name, b"precious")
    with pytest.raises(StorageError, match="not a name that Holdfast gives"):
        store.delete(name)
    assert store.read(name, 100) == b"precious"


def test_nothing_is_deleted_through_a_link(folder: Path) -> None:
    name = names.manifest("job", "1-1")
    kept = aged(folder / "elsewhere/manifests/1-1.json")
    (folder / "storage/jobs").mkdir(parents=True)
    (folder / "storage/jobs/job").symlink_to(folder / "elsewhere")
    with pytest.raises(StorageError, match="through a link"):
        Store.open(f"file://{folder}/storage").delete(name)
    assert kept.exists()


def test_a_folder_with_files_of_others_is_not_claimed(tmp_path: Path) -> None:
    notes = aged(tmp_path / "notes.json")
    with pytest.raises(removal.NotOursError, match=r"holds files that Holdfast did not make: notes\.json"):
        removal.claim(tmp_path, KNOWN)
    for remove in (removal.file, removal.tree):
        with pytest.raises(removal.NotOursError):
            remove(notes if remove is removal.file else tmp_path)
    assert notes.exists()


def test_what_a_version_before_the_marks_left_is_taken_up(tmp_path: Path) -> None:
    left = aged(tmp_path / "job.1.json")
    removal.claim(tmp_path, KNOWN)
    removal.claim(tmp_path)
    notes = aged(tmp_path / "notes.json")
    assert removal.clear(tmp_path, KNOWN) == ["notes.json"]
    assert notes.exists()
    assert not left.exists()


@pytest.mark.parametrize("kind", ["folder", "link", "other text"])
def test_a_mark_that_somebody_else_made_is_none(tmp_path: Path, kind: str) -> None:
    target, ours = tmp_path / "target", tmp_path / "ours"
    ours.mkdir()
    removal.claim(ours)
    target.mkdir()
    mark = target / removal.MARK
    {"folder": mark.mkdir, "link": lambda: mark.symlink_to(ours / removal.MARK)}.get(
        kind, lambda: mark.write_text("mine")
    )()
    with pytest.raises(removal.NotOursError, match=r"did not make: \.holdfast"):
        removal.claim(target)
    with pytest.raises(removal.NotOursError):
        removal.tree(target)


def test_a_claimed_folder_goes_with_all_in_it_and_no_link_is_followed(tmp_path: Path) -> None:
    kept = aged(tmp_path / "kept" / "notes")
    ours = tmp_path / "ours"
    (ours / "below" / "it").mkdir(parents=True)
    with pytest.raises(removal.NotOursError):
        removal.tree(ours)
    for made in (ours / "below" / "it", ours / "below", ours):
        made.joinpath("link").symlink_to(kept.parent)
    (ours / "empty").mkdir()
    removal.claim(ours / "empty")
    removal.tree(ours / "empty")
    link = tmp_path / "link"
    link.symlink_to(ours)
    with pytest.raises(removal.NotOursError, match="not a folder"):
        removal.tree(link)
    removal.claim(ours, re.compile("below|link"))
    removal.tree(ours)
    assert (ours.exists(), kept.exists()) == (False, True)


def test_only_what_we_wrote_is_taken_back(tmp_path: Path) -> None:
    ours, notes = tmp_path / "ours", aged(tmp_path / "notes")
    ours.write_bytes(b"ours")
    removal.written(notes, b"ours")
    removal.written(ours, b"ours")
    with pytest.raises(removal.NotOursError, match="not a draft"):
        removal.draft(notes)
    with open(notes, "rb") as held:
        notes.rename(tmp_path / "moved")
        aged(notes)
        removal.opened(notes, held.fileno())
    assert (ours.exists(), notes.exists()) == (False, True)


def test_a_process_that_can_open_no_file_calls_nothing_foreign(folder: Path) -> None:
    removal.claim(folder)
    path = folder / "a.1.json"
    path.touch()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError) as raised:
            removal.file(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert raised.value.errno == errno.EMFILE and path.exists()
    removal.file(path)
    assert not path.exists()
