"""PyTorch on the CPU or an accelerator, eager or compiled; imported only when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelbench.frameworks import PackagedFramework

if TYPE_CHECKING:
    from levelbench.distributed.communicator import Communicator
    from levelbench.distributed.launching.environment import RankPlace


class TorchFramework(PackagedFramework):
    """Devices: ``cpu``, ``cuda``, ``cuda:N``."""

    name = "torch"
    title = "PyTorch"
    backend_class = "TorchBackend"
    imports = (
        "levelbench.frameworks.torch.backend",
        "levelbench.frameworks.torch.optimizers",
        "array_api_compat.torch",
    )
    modes = ("eager", "compiled")
    communicators = ("gloo", "nccl")
    channels_last = True
    gemm_types = ("float32", "bfloat16")

    def communicator(self, kind: str, place: RankPlace, timeout_s: float) -> Communicator:
        """Over PyTorch's default process group."""
        from levelbench.frameworks.torch.communicator import open_group

        return open_group(kind, place, timeout_s)


framework = TorchFramework()
