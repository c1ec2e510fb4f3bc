"""Findings on real claims, each checked by hand against the data: right, wrong or arguable, and why.

Keys are (claim, code, how many findings of that code the claim has); a claim is a file of docs/evidence/claims or the
name of an entry. Entries are other people's and not here; what is said of them are facts that were read from them.
"""

from __future__ import annotations

__all__ = ["ARTICLES", "DAWNBENCH", "MLPERF", "STOPPED_ON_TEST", "Verdicts"]

Verdicts = dict[tuple[str, str, int], tuple[str, str]]

STOPPED_ON_TEST = (
    "CIFAR-10's test images are what DAWNBench looks for the target on, after every epoch, so they choose the time "
    "that is claimed. The benchmark asks for it: it is no entry's fault, and no validation split was cut"
)

DAWNBENCH: Verdicts = {
    ("BAIDU-USA-GAIT_BaiduNet9_1GV100_pytorch", "LB110", 1): (
        "right",
        "row 24 of 24 is the first at 94 % (94.10); the schedule was of that length",
    ),
    ("ajay_resnet9_1v100_pytorch", "LB110", 1): (
        "right",
        "row 24 of 24 is the first at 94 % (94.06); the schedule was of that length",
    ),
    ("ajay_resnet9_4v100_pytorch", "LB110", 1): (
        "right",
        "row 14 of 14 is the first (94.05), and its command line asks for 20 runs, of which this is one",
    ),
    ("davidcpage_resnet9_1v100-ec2_pytorch", "LB110", 1): (
        "right",
        "row 24 of 24 is the first (94.08); the schedule was of that length, and one run of it is shown",
    ),
    ("kakaobrain_custom-resnet9_1v100-braincloud_pytorch", "LB110", 1): (
        "right",
        "row 25 of 25 is the first (94.20); its README says that 30 of 50 such runs arrive",
    ),
    ("lambda_BaiduNet9_lambda_cloud_single_pytorch", "LB110", 1): (
        "right",
        "row 24 of 24 is the first (94.02)",
    ),
    ("dawn_resnet164_nb_16vCPUs-gc_pytorch", "LB130", 1): (
        "right",
        "94.05 in row 141, below in 142 and 144, twice in a row only in 145 and 146; 12 rows below after the first",
    ),
    ("dawn_resnet164_nb_16vCPUs-gc_tensorflow", "LB130", 1): (
        "right",
        "94.02 in row 161, never two in a row, 93.85 at the end: 17 of 20 rows after it are below",
    ),
    ("dawn_resnet164_nb_1k80-ec2_pytorch", "LB130", 2): (
        "right",
        "94.08 in row 152, then three below; and 93.93 at the end",
    ),
    ("dawn_resnet164_nb_1k80-gc_tensorflow", "LB130", 1): (
        "right",
        "94.02 in row 144, then four below; confirmed 38 minutes later",
    ),
    ("dawn_resnet164_nb_1p100-dawn_tensorflow", "LB130", 1): (
        "right",
        "94.06 in row 158, then 16 of 19 below; confirmed 24 minutes later",
    ),
    ("dawn_resnet164_nb_1p100-dawn_tensorflow_part2", "LB130", 1): (
        "right",
        "94.01 in row 150, then two below; confirmed 8 minutes later",
    ),
    ("diux_cifar_p3", "LB130", 1): ("right", "94.03 in row 89, then 93.89 and 93.92; it stays only from 1.56 h on"),
}
"""Without LB122, which all 31 entries of training have."""

MLPERF: Verdicts = {}
"""All five curves end with the first evaluation at 75.9 %, where MLPerf's rules stop the clock: LB110 asks, no more."""

ARTICLES: Verdicts = {
    ("airbench-2.59-s.toml", "LB106", 1): ("right", "the data set is loaded to the device before the clock starts"),
    ("airbench-2.59-s.toml", "LB204", 1): ("right", "200 runs, and no interval of their time beside the 2.59 s"),
    ("fall-by-orders.toml", "LB104", 2): ("right", "K80 and V100 are three years, and 3.6 times in float32, apart"),
    ("fall-by-orders.toml", "LB110", 1): ("right", "that entry's curve ends with its crossing row, see above"),
    ("fast-reference.toml", "LB302", 1): ("right", "the article says that it ends 5 % below the paper, for a bug"),
    ("imagenet-18-minutes.toml", "LB130", 1): (
        "arguable",
        "DAWNBench counts the first evaluation; the entry had a curve, which this claim does not give",
    ),
    ("kakaobrain-33-of-50.toml", "LB122", 1): ("right", STOPPED_ON_TEST),
    ("kakaobrain-33-of-50.toml", "LB204", 1): (
        "right",
        "27.98 s is a time of the two thirds that arrive: with restarts one has to expect about 1.5 times as much",
    ),
    ("kakaobrain-33-of-50.toml", "LB123", 1): ("right", "27.98 s is one of 50 runs, of which 17 never arrived"),
    ("large-minibatch.toml", "LB112", 1): (
        "right",
        "the article shows that the accuracy falls as the throughput rises",
    ),
    ("meprop-x-8-bit.toml", "LB303", 1): ("right", "9.3 = 3.1 x 3, asked by the article as a question, not measured"),
    ("rates-of-hpl.toml", "LB202", 1): ("right", "300 Gflop in 150 s are 2 Gflop/s, not 4.5: the paper's own example"),
    ("rates-of-hpl.toml", "LB204", 2): (
        "arguable",
        "10, 100 and 40 s with no interval: so it is, and the example is of means and not of spread",
    ),
    ("stochastic-depth-x-4-gpus.toml", "LB101", 1): ("right", "with the larger batch the target is never reached"),
    ("stochastic-depth-x-4-gpus.toml", "LB201", 1): ("right", "the article gives ratios and no time"),
    ("stochastic-depth-x-4-gpus.toml", "LB303", 1): ("right", "5 is the product, 1.62 what was measured"),
    ("tpu-half-pod.toml", "LB112", 1): ("right", "24 minutes leave out the checkpoints that 30 minutes have"),
    ("tpu-half-pod.toml", "LB130", 2): (
        "right",
        "the entry of the 30 minutes has exactly 93.00 at 30:43 and 92.93 in the row after; of the 24 no curve is "
        "given",
    ),
}
