"""GPUs and cores: what there is and who uses it, where a trial is put, and batches that are shared on a GPU."""

from tsnb.hardware.inventory import Gpu, GpuUser
from tsnb.hardware.listing import Devices, devices

__all__ = ["Devices", "Gpu", "GpuUser", "devices"]
