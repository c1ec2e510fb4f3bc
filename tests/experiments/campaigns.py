"""What tests of campaigns ask for, and a watcher that prints nothing."""

from levelbench.experiments.plan import make_plan
from levelbench.experiments.request import Options
from levelbench.measure.environment import capture

HERE = capture()
NUMPY = Options(framework="numpy")


class Quiet:
    def __init__(self):
        self.order, self.doubts = [], []

    def doubted(self, doubts):
        self.doubts += doubts

    def started(self, step, arm):
        self.order.append((step.arm, step.seed))

    def progress(self, events, elapsed_s, phase):
        pass

    def finished(self, step, arm, finished, record):
        pass


def plan_of(arms, seeds, store, environment=HERE, **options):
    return make_plan(arms, seeds, store, environment, **options)


def losses(record):
    return [each.loss for each in record.evaluations]
