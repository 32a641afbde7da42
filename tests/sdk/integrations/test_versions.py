"""Another version of a framework than the one that was tried is told, by both names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from holdfast.integrations import versions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the path, for packages that pip would have installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(folder: Path, package: str, version: str) -> None:
    place = folder / f"{package}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


@pytest.mark.parametrize("package", versions.TRIED)
def test_another_version_is_told_by_both_names(
    package: str, installed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(installed, package, "0.0.7")
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        versions.check(package)
        versions.check(package)  # a Trainer asks, and its arguments
    assert caplog.text.count(" was tried with ") == 1
    assert f"{package} 0.0.7: Holdfast was tried with {package} {versions.TRIED[package]}" in caplog.text


def test_the_version_that_was_tried_is_not_told(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    for package, version in versions.TRIED.items():
        install(installed, package, version)
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        versions.check(*versions.TRIED)
    assert caplog.text == ""
