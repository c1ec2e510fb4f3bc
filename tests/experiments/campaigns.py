"""What tests of campaigns ask for, and a watcher that prints nothing."""

from levelbench.experiments import kernel
from levelbench.experiments.request import Options
from levelbench.experiments.training import Training
from levelbench.measure.environment import capture

HERE = capture()
NUMPY = Options(framework="numpy")


class Quiet(kernel.Watcher):
    def __init__(self):
        self.order, self.doubts = [], []

    def doubted(self, doubts):
        self.doubts += doubts

    def started(self, turn, number, total):
        self.order.append(turn.place)


def plan_of(arms, seeds, store, environment=HERE, **options):
    return kernel.make_plan(Training(store), arms, seeds, environment, **options)


def carry_out(plan, store, data, watcher, extras=None):
    return kernel.carry_out(plan, Training(store, data, extras), watcher)


def losses(record):
    return [each.loss for each in record.evaluations]
