"""Ask NVML (the names are those of the package nvidia-ml-py) what not every device, driver or version of the
package knows."""

from __future__ import annotations

from typing import Any


def asked(nvml: Any, name: str, *arguments: Any) -> Any | None:
    """The answer of an NVML function; None where the package, the driver or the device has none.

    An argument in capitals is a constant of the package."""
    try:
        values = [getattr(nvml, each) if isinstance(each, str) else each for each in arguments]
        return getattr(nvml, name)(*values)
    except (AttributeError, nvml.NVMLError):
        return None


def links(nvml: Any, handle: Any) -> dict[int, bool]:
    """The NVLinks of a device, and which of them are active; {}: it has none."""
    found = dict[int, bool]()
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0)):
        state = asked(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break  # this device has no more links
        found[link] = bool(state)
    return found
