"""PyTorch on the CPU or an accelerator, eager or compiled; imported only when it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelbench.frameworks import PackagedFramework
from levelbench.measure.ceilings import GemmMaker
from levelbench.networks.executor import Backend

if TYPE_CHECKING:
    from levelbench.distributed.communicator import Communicator
    from levelbench.distributed.launching.environment import RankPlace


class TorchFramework(PackagedFramework):
    """Devices: ``cpu``, ``cuda``, ``cuda:N``."""

    name = "torch"
    title = "PyTorch"
    imports = (
        "levelbench.frameworks.torch.backend",
        "levelbench.frameworks.torch.optimizers",
        "array_api_compat.torch",
    )
    modes = ("eager", "compiled")
    communicators = ("gloo", "nccl")

    def lacking_device(self, device: str) -> str | None:
        from levelbench.frameworks.torch.backend import lacking_device

        return lacking_device(device)

    def backend(self, device: str) -> Backend:
        from levelbench.frameworks.torch.backend import TorchBackend

        return TorchBackend(device)

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        """float32, and bfloat16, which NumPy does not have."""
        from levelbench.frameworks.torch.backend import gemm

        return [(name, gemm(name)) for name in ("float32", "bfloat16")]

    def communicator(self, kind: str, place: RankPlace, timeout_s: float) -> Communicator:
        """Over PyTorch's default process group."""
        from levelbench.frameworks.torch.communicator import open_group

        return open_group(kind, place, timeout_s)


framework = TorchFramework()
