"""Know how many floating-point operations per second a device can do at most, in bfloat16 or float16.

Peaks are those of dense matrices: the makers' data sheets show twice as much with sparsity. A device is
looked up by the whole name that its driver gives, so a partition of a device (MIG) or a variant is never
taken for the whole one: what is not here is unknown."""

from __future__ import annotations

_PREFIXES = ("NVIDIA ", "AMD Instinct ")
PEAKS: dict[str, float] = {
    # NVIDIA A100 Tensor Core GPU data sheet (2021): 312 TFLOPS
    **dict.fromkeys(
        ("A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100-PCIE-80GB", "A100 80GB PCIe"), 312e12
    ),
    "A30": 165e12,  # NVIDIA A30 data sheet (2021)
    "A10": 125e12,  # NVIDIA A10 data sheet (2021)
    "H100 80GB HBM3": 989e12,  # H100 SXM; NVIDIA H100 data sheet (2023): 1,979 TFLOPS with sparsity
    "H100 PCIe": 756e12,  # NVIDIA H100 data sheet (2023): 1,513 with sparsity
    "H100 NVL": 835e12,  # NVIDIA H100 NVL data sheet (2024): 1,671 with sparsity
    "H200": 989e12,  # H200 SXM; NVIDIA H200 data sheet (2024): 1,979 with sparsity
    "H200 NVL": 835e12,  # NVIDIA H200 data sheet (2024): 1,671 with sparsity
    "GH200 480GB": 989e12,  # NVIDIA GH200 data sheet (2023): 1,979 with sparsity
    "B200": 2250e12,  # NVIDIA HGX B200 (2024): 36 PFLOPS with sparsity for eight
    "GB200": 2500e12,  # NVIDIA GB200 NVL72 (2024): 360 PFLOPS with sparsity for 72
    "L40S": 362e12,  # NVIDIA L40S data sheet (2023)
    "L4": 121e12,  # NVIDIA L4 data sheet (2023): 242 with sparsity
    "MI300X": 1307e12,  # AMD Instinct MI300X data sheet (2023)
}
"""Operations per second, by the device's name without its maker."""
TYPES = ("bfloat16", "float16")
"""The types that these peaks hold for."""


def peak(device: str) -> float:
    """The peak of a device by its driver's name, in operations per second; 0: not known."""
    for prefix in _PREFIXES:
        device = device.removeprefix(prefix)
    return PEAKS.get(device, 0.0)
