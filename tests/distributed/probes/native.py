"""Schemes that bypass the communicator, like a framework's own: a correct one, and faults in its state."""

from dataclasses import dataclass
from typing import ClassVar

from levelbench.distributed.scheme import Scheme, Traffic
from levelbench.planted import schemes_known


@dataclass(frozen=True)
class Native(Scheme):
    """Stands for a framework's scheme: its traffic is not counted, so it is checked on processes."""

    name: ClassVar[str] = "native"
    source: ClassVar[str] = "none"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = True
    counted: ClassVar[bool] = False
    communicators: ClassVar[tuple[str, ...]] = ("gloo",)

    def start(self, worker):
        return schemes_known.Feeds(worker)

    def traffic(self, parameters, itemsize, size, rank):
        return Traffic(0.0, 0.0)


class RestoresNothing(Native):
    def start(self, worker):
        return schemes_known.RestoresNothing(worker)


class RestoresOfAnother(Native):
    def start(self, worker):
        return schemes_known.GoesOnFromAnothersState(worker)


class SaysNothingOfItsState(Native):
    def start(self, worker):
        stepper = schemes_known.Feeds(worker)
        stepper.kept = False
        return stepper
