"""What a run ran on: processor, GPU, memory and library versions."""

import os
import platform
from functools import lru_cache
from pathlib import Path

import psutil
import torch
import transformers


@lru_cache
def describe_hardware(device: torch.device) -> dict[str, str]:
    """Processor, cores, memory, device and versions by name."""
    described = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "device": str(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
    return described


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
