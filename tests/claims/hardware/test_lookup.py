"""lookup: what descriptions of hardware mean. The descriptions of DAWNBench's entries were typed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.claims.hardware import accelerators_in, lookup, table

DAWNBENCH = {
    "1 GPU (Nvidia GeForce GTX 1080 Ti)": ("GTX 1080 Ti", 1, True),
    "1 K80 / 30 GB / 8 CPU (Google Cloud)": ("K80", 1, True),
    "1 K80 / 61 GB / 4 CPU (Amazon EC2 [p2.xlarge])": ("K80", 1, True),
    "1 P100 / 128 GB / 16 CPU": ("P100-SXM2", 1, True),
    "1 P100 / 384 GB / 48 CPU (x86_64 architecture machine)": ("P100-SXM2", 1, True),
    "1 P100 / 512 GB / 56 CPU (DAWN Internal Cluster)": ("P100-SXM2", 1, True),
    "60 GB / 16 CPU (Google Cloud [n1-standard-16])": ("n1-standard-16", 1, True),
    "8 * V100 (AWS p3.16xlarge)": ("V100-SXM2", 8, True),
    "Baidu Cloud Tesla 8*V100-16GB/448 GB/96 CPU": ("V100-SXM2", 8, True),
    "Baidu Cloud Tesla V100*1-16GB/56 GB/12 CPU": ("V100-SXM2", 1, True),
    "Baidu Cloud Tesla V100*1/60 GB/12 CPU": ("V100-SXM2", 1, True),
    "Huawei Cloud [pi2.2xlarge.4]": ("T4", 1, True),
    "IBM AC922 + 4 * Nvidia Tesla V100 (NCSA HAL)": ("V100-SXM2", 4, True),
    "IBM AC922 + Nvidia Tesla V100 (Nimbix np9g1)": ("V100-SXM2", 1, False),
    "Lambda GPU Cloud - 4x GTX 1080 Ti": ("GTX 1080 Ti", 4, True),
    "Paperspace Volta (V100)": ("V100-SXM2", 1, False),
    "Tesla V100 * 1 GPU / 488 GB / 56 CPU (Kakao Brain BrainCloud)": ("V100-SXM2", 1, True),
    "Tesla V100 * 4 GPU / 488 GB / 56 CPU (Kakao Brain BrainCloud)": ("V100-SXM2", 4, True),
    "Tesla V100 * 8 GPU / 32 GB / 40 CPU": ("V100-SXM2", 8, True),
    "V100 (AWS p3.2xlarge)": ("V100-SXM2", 1, True),
    "g3.4xlarge": ("M60", 1, True),
    "p3.2xlarge": ("V100-SXM2", 1, True),
    "tpu-v3-2048": ("TPU v3", 1024, True),
}
OTHERS = {
    "TPUv3-32": ("TPU v3", 16, True),
    "TPU v3 pod with 1024 chips": ("TPU v3", 1024, True),
    "4 x TPU v3-8": ("TPU v3", 16, True),
    "8 TPU v3 cores": ("TPU v3", 4, True),
    "v5litepod-16": ("TPU v5e", 16, True),
    "4 x NVIDIA A100-SXM4-40GB": ("A100-SXM4-40GB", 4, True),
    "NVIDIA A100-SXM4-80GB": ("A100-SXM4-80GB", 1, False),
    "NVIDIA A100 80GB PCIe": ("A100-PCIe-80GB", 1, False),
    "a 400W NVIDIA A100": ("A100-SXM4-40GB", 1, False),
    "8x NVIDIA H100 80GB HBM3": ("H100-SXM5", 8, True),
    "8xH100": ("H100-SXM5", 8, True),
    "NVIDIA H200": ("H200-SXM", 1, False),
    "Tesla V100S-PCIE-32GB": ("V100S-PCIe", 1, False),
    "8x H100 (PCIe)": ("H100-PCIe", 8, True),
    "8x NVIDIA H100 (80GB, PCIe)": ("H100-PCIe", 8, True),
    "8x A100 SXM4 (80GB)": ("A100-SXM4-80GB", 8, True),
    "8 V100 GPUs (PCIe)": ("V100-PCIe", 8, True),
    "A100 (host: 80GB RAM)": ("A100-SXM4-40GB", 1, False),
    "1 node (8 A100)": ("A100-SXM4-40GB", 8, True),
    "ResNet-50 on 8 V100s": ("V100-SXM2", 8, True),
    "V100x4": ("V100-SXM2", 4, True),
    "(2) Tesla T4": ("T4", 2, True),
    "1k80": ("K80", 1, True),
    "16 nodes with 8 x V100 each": ("V100-SXM2", 128, True),
    "16 nodes x 8 A100": ("A100-SXM4-40GB", 128, True),
    "16 nodes, 128 V100": ("V100-SXM2", 128, True),
    "64 x p3.16xlarge": ("V100-SXM2", 512, True),
    "2x DGX-2": ("V100-SXM2", 32, True),
    "GeForce RTX 3090": ("RTX 3090", 1, False),
    "8 x A100-SXM4-80GB (DGX A100)": ("A100-SXM4-80GB", 8, True),
    "dgxa100_n8": ("A100-SXM4-40GB", 8, True),
    "4 x Tesla V100 (V100-PCIE-16GB)": ("V100-PCIe", 4, True),
    "Google Trillium TPU": ("TPU v6e", 1, False),
    "c5.18xlarge": ("Xeon Platinum 8124M", 2, True),
    "Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz": ("Xeon Platinum 8275CL", 1, False),
    "2 x Intel Xeon Gold 6148": ("Xeon Gold 6148", 2, True),
    "AMD EPYC 7763 64-Core Processor, 8 x A100": ("A100-SXM4-40GB", 8, True),
}
NOTHING = (
    "",
    "A1000 pixels",
    "A100 pixels",
    "V1000",
    "RTX 3090 Ti",
    "H100 NVL",
    "GH200",
    "Quadro GV100",
    "GTX 1080p video",
    "the T4 dataset",
    "p100 latency 3 ms",
    "a trillium in the garden",
    "our L4 loss",
    "K80 and P100",
    "A100 40GB, A100 80GB",
    "p3.2xlarge or g3.4xlarge",
    "60 GB / 16 CPU",
    "Intel Xeon CPU",
    "4 GPUs",
    "m5.xlarge",
)


@pytest.mark.parametrize(("description", "expected"), [*DAWNBENCH.items(), *OTHERS.items()])
def test_a_description_means_a_device_and_a_number(description, expected):
    match = lookup(description)
    assert match is not None
    assert (match.name, match.units, match.count_stated) == expected
    assert match.how


@pytest.mark.parametrize("description", NOTHING)
def test_what_the_table_does_not_have_is_none(description):
    assert lookup(description) is None


def test_the_figures_are_of_the_whole_system():
    match = lookup("8 * V100 (AWS p3.16xlarge)")
    assert match is not None
    assert match.peak_flops["float16"] == pytest.approx(1e15)
    assert match.bandwidth == pytest.approx(7.2e12)
    assert match.power_w == pytest.approx(2400)
    assert match.price_per_hour == pytest.approx(24.48)
    assert match.price_source is not None
    assert match.price_source.startswith("1 x p3.16xlarge, us-east-1")
    assert match.release_year == 2017


def test_as_many_instances_are_paid_as_hold_the_devices():
    match = lookup("32 x V100 (p3.16xlarge)")
    assert match is not None
    assert match.price_per_hour == pytest.approx(4 * 24.48)


def test_what_had_to_be_assumed_is_said():
    match = lookup("V100")
    assert match is not None
    assert match.assumed == (
        "the variant of V100 is not stated: V100-SXM2 is assumed",
        "the number is not stated: one is assumed",
    )


def test_a_number_that_is_stated_apart_goes_before_the_description():
    match = lookup("NVIDIA H100 PCIe", accelerators=4)
    assert match is not None
    assert (match.units, match.count_stated, match.assumed) == (4, True, ())


def test_the_price_of_an_instance_without_the_device_is_left_out():
    match = lookup("4 x A100 (p3.8xlarge)")
    assert match is not None
    assert match.name == "A100-SXM4-40GB"
    assert match.price_per_hour is None
    assert "p3.8xlarge has no A100-SXM4-40GB" in match.assumed[0]


def test_an_instance_of_an_unknown_processor_has_a_price_and_no_peak():
    match = lookup("n1-standard-16")
    assert match is not None
    assert match.peak_flops == {}
    assert match.bandwidth is None
    assert match.price_per_hour == pytest.approx(0.76)


def test_a_share_of_a_processor_has_that_share_of_its_peak():
    match = lookup("c5.4xlarge")
    assert match is not None
    assert match.peak_flops["float32"] == pytest.approx(8 * 3.0e9 * 64)


WORDS = st.sampled_from(
    ["4", "x", "V100", "A100", "T4", "GPU", "(", "p3.2xlarge", "v3-8", "TPU", "-", "1080", "ti", "/"]
)


@given(st.one_of(st.text(), st.lists(WORDS, max_size=12).map(" ".join)))
def test_no_text_breaks_it(text):
    match = lookup(text)
    if match is not None:
        assert match.units > 0
        assert all(peak > 0 for peak in match.peak_flops.values())


@given(st.sampled_from(sorted(table().devices)), st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=4))
def test_a_name_inside_a_longer_word_is_no_match(name, more):
    if more != "s":
        assert lookup(f"{more}{name.replace(' ', '')}{more}") is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["1 x ", "4", "nvidia ", "(", "A100 / "])
def test_a_hostile_text_costs_no_more_than_its_length(text):
    # In a time that grows with the square of the length, each of these takes hours.
    lookup(text * 200_000 + "V100")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Baidu Cloud Tesla 8*V100-16GB/448 GB/96 CPU", 8),
        ("Baidu Cloud Tesla V100*1-16GB/56 GB/12 CPU", 1),
        ("IBM AC922 + 4 * Nvidia Tesla V100 (NCSA HAL)", 4),
        ("Tesla V100 * 8 GPU / 32 GB / 40 CPU", 8),
        ("Lambda GPU Cloud - 4x GTX 1080 Ti", 4),
        ("1 K80 / 61 GB / 4 CPU (Amazon EC2 [p2.xlarge])", 1),
        ("V100 (AWS p3.2xlarge)", 1),
        ("60 GB / 16 CPU (Google Cloud [n1-standard-16])", None),
        ("p3.16xlarge", 8),
        ("tpu-v3-2048", 1024),
        ("one fast machine", None),
        ("16 nodes with 8 x V100 each", 128),
        ("2 machines with 8 V100 each", 16),
        ("two machines with 8 V100 each", 16),
        ("2 nodes, 8 * V100 per node", 16),
        ("16 nodes, 128 V100, 8 per node", 128),
        ("16 * 8 * Tesla V100", 128),
        ("Tesla V100 x 8 x 4", 32),
        ("V100 x 8 x 32GB", 8),
        ("128 * V100 (16 nodes each 8 * V100)", 128),
        ("128 * V100 (4 nodes each 8 * V100)", None),
        ("p3.16xlarge (8 x V100)", 8),
        ("p3.8xlarge (4x V100)", 4),
        ("NVIDIA DGX-1 (8 V100 GPUs)", 8),
        ("DGX-1 (8 GPUs)", 8),
        ("2 x DGX-1 (16 GPUs)", 16),
        ("p3.16xlarge x 2", 16),
        ("128 V100 (16 nodes x 8)", 128),
        ("8 * V100 * 16 nodes", 128),
        ("1,024 V100", 1024),
        ("2 x p3.16xlarge (8 x V100 each)", 16),
        ("2 nodes, p3.16xlarge each", 16),
        ("2 servers, 4 GPUs each", 8),
        ("8 x GTX 980", 8),
        ("4 x V100 and 4 x P100", None),
        ("several GPUs", None),
        ("TPUv3-1,024", 512),
        ("TPUv3-8 x 4", 16),
        ("2 x (8 x V100)", 16),
        ("2 nodes x p3.16xlarge", 16),
        ("two p3.16xlarge", 16),
        ("two DGX-1 (8 x V100 each)", 16),
        ("128 GPUs (16 nodes, 8 x V100)", 128),
        ("1'024 x V100", 1024),
        ("8x V100 (x86), 3 x 100 Gb/s", 8),
        ("4 x V100, 2 x Xeon E5-2640", 4),
        ("64 racks * 8 * H100", 512),
        ("DGX-1 (8 x V100) x 2", 16),
        ("8 * V100 per node * 16", 128),
        ("8 x V100-SXM2-16GB x 4 nodes", 32),
        ("8 x V100 (16GB) x 4 nodes", 32),
        ("4 AWS p3.16xlarge nodes", 32),
        ("16 AWS p3.16xlarge instances", 128),
        ("AWS p3.16xlarge (4 nodes)", 32),
        ("4 nodes of p3.16xlarge", 32),
        ("2 boxes with 8 V100 each", 16),
        ("10 Supermicro servers (4 x A100 each)", 40),
        ("8 V100 in each of 2 boxes", 16),
        ("64 nodes of 8 x V100", 512),
        ("32 x V100 (4 nodes of 8)", 32),
        ("(8 x V100) x 4", 32),
        ("V100 x16", 16),
        ("4 DGX-1s", 32),
        ("16 DGX-2s", 256),
        ("two p3.16xlarges", 16),
        ("8 V100, batch size 32 per GPU", 8),
        ("8 V100, 32 per GPU", 8),
        ("8x A100, global batch 256, 32 per GPU", 8),
        ("8 A100 GPUs (batch 32 per GPU)", 8),
        ("V100, batch 32 per GPU", 1),
        ("8 V100 x 3 days", 8),
        ("8 V100 x 24 hours", 8),
        ("4 nodes, 8 V100/node", 32),
        ("8 V100/node, 4 nodes", 32),
        ("8 workers with one V100 each", 8),
        ("8 V100, 3 runs", 8),
        ("8 V100 with 32 GB each", 8),
        ("8 GPUs: 8 x V100", 8),
        ("8x NVIDIA A100-SXM4-80GB", 8),
        ("V100-PCIE-16GB x8", 8),
        ("p3.16xlarge, one V100", 1),
        ("one A100 GPU in a DGX A100", 1),
        ("single V100 GPU on p3.16xlarge", 1),
        ("p3.8xlarge with a single V100 GPU", 1),
        ("2-node cluster with 4 A100 each", 8),
        ("2-node cluster, 4 A100 per node", 8),
        ("16-node p3.16xlarge cluster", 128),
        ("4-node DGX A100 cluster", 32),
        ("1 TPU v3 device (8 cores)", 4),
        ("1 TPUv2 (8 cores)", 4),
        ("32 CPU nodes with 8 P100 each", 256),
        ("8x V100 (p3.16xlarge) and 4 parameter servers", 8),
        ("A100 (2020)", 1),
        ("8x A100-SXM4-80GB, 2x AMD EPYC 7742", 8),
        ("2x AMD EPYC 7742, 8x NVIDIA A100", 8),
        ("2 AMD EPYC 7742 CPUs and 8 NVIDIA A100 GPUs", 8),
        ("8xH100-SXM-80GB, 2xAMD EPYC 9654", 8),
        ("V100 16GB x 8", 8),
        ("V100 (16 GB) x8", 8),
        ("A100 (80GB) x 8", 8),
        ("V100-16GB x8", 8),
        ("8 V100, Intel Xeon E5-2698 v4 x 2", 8),
        ("8x H100, 2x Intel(R) Xeon(R) Platinum 8480C", 8),
        ("128 V100s (8 per node)", 128),
        ("4 nodes (8xV100)", 32),
        ("TPU v3 2048 cores", 1024),
        ("TPUv3 with 1024 cores", 512),
        ("TPU v3 (8 cores)", 4),
        ("8-GPU A100 server", 8),
        ("TPU v3-32 pod slice", 16),
        ("8 x H100 80GB, NVLink, 400 Gb/s InfiniBand, Ubuntu 20.04, CUDA 11.8", 8),
        ("NVIDIA A100-SXM4-80GB (400W TDP) x 8", 8),
        ("dual V100", 2),
        ("8 NVIDIA Tesla V100 with 32 GB, two Xeon Gold 6148 with 20 cores each", 8),
        ("8 V100 on 2 nodes", 8),
        ("16 nodes, 128 V100, PCIe 3, CUDA 10.0", 128),
        ("4 nodes with a total of 32 V100 GPUs", 32),
        ("2 nodes (16 A100 in total)", 16),
        ("2 nodes (total of 16 A100)", 16),
        ("16 V100 GPUs total (2 nodes x 8)", 16),
        ("4 nodes (32 V100 GPUs)", 32),
        ("16 nodes (8 V100)", 128),
        ("8 V100 for 3 days", 8),
        ("8x V100, 24 h", 8),
        ("DGX-1 with 8 P100", 8),
    ],
)
def test_accelerators_are_counted_as_their_hardware_is_looked_up(text, count):
    assert accelerators_in(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "1 024 x V100",
        "1.5 x V100",
        "0 x V100",
        "64 blades * 8 * H100",
        "2 x DGX-1 (4 x V100)",
        "8 x V100 + 8 x V100",
        "4 x V100, 4 x V100",
        "2 nodes with 4 x V100",
        "4 Dell C4140 (4 x V100 each)",
        "96 DGX-2H, 16 V100 each",
        "1/4 TPU v2 pod",
        "4 nodes with V100",
        "4x V100 (16 GB) + 4x V100 (32 GB)",
        "4x V100 16GB + 4x V100 32GB",
        "4 V100 (node A) + 4 V100 (node B)",
        "node A: 4 V100, node B: 4 V100",
        "4x V100 / 4x V100",
        "4x V100; 4x V100",
        "4x V100 plus 4x V100",
        "node0 4xV100 node1 4xV100",
        "thirty two V100 GPUs",
        "sixty four GPUs (V100)",
        "one hundred V100s",
        "thirty-two V100",
        "2k V100",
        "NVIDIA Tesla V100 PCIe x16 16GB",
        "RTX 4090 PCIe x16",
        "NVIDIA A100-PCIE-40GB x16 Gen4",
        "PCIe 4.0 x16 A100",
        "V100 on an 8-GPU node",
        "8 V100 GPUs (only 4 used)",
        "4N x 8 V100",
        "2 CPUs, 4 V100 per CPU",
        "1 of 8 V100 GPUs",
        "1 out of 8 V100 GPUs",
        "2 nodes (16 A100 GPUs)",
        "1000 GPU hours on A100",
        "A100 GPU, 30 GPU-hours",
        "8 V100-days",
        "5 A100 GPU days",
        "4 DGX-1 with 8 P100 each",
        "2 x DGX-1 (8 x P100)",
        "p3.16xlarge, 1 of 8 V100 used",
        "8-16 V100",
        "1–8 V100s",
        "1-8 V100 GPUs",
        "up to 8 V100 GPUs",
        "at least 8 V100",
        "from 1 to 8 V100 GPUs",
        "between 8 and 64 V100",
        "16 TPUv2 pods",
        "2 TPU v4 pods",
        "1 TPU v3 pod",
        "8 A100 MIG slices",
        "4 x NVIDIA A100 40GB SXM, 2 x 24-core Intel Xeon, 512 GB RAM, 4 x NVMe",
    ],
)
def test_what_may_be_several_numbers_of_accelerators_is_none_of_them(text):
    assert accelerators_in(text) is None
    assert lookup(text) is None


def test_a_stated_number_of_accelerators_wins():
    assert accelerators_in("8 V100", accelerators=16) == 16
    match = lookup("4 x V100, 4 x V100", accelerators=8)
    assert match is not None
    assert (match.units, match.count_stated) == (8, True)


def test_a_description_is_that_of_a_node_if_the_number_of_accelerators_is_not_stated():
    assert accelerators_in("8 V100", nodes=2) == 16
    assert accelerators_in("DGX-1", nodes=8, accelerators=64) == 64


def test_nodes_that_the_description_counts_itself_are_not_counted_twice():
    assert accelerators_in("2 nodes, 8 V100 each", nodes=2) == 16
    assert accelerators_in("2 x p3.16xlarge", nodes=2) == 16
    match = lookup("2 nodes, 8 V100 each", nodes=2)
    assert match is not None
    assert match.units == 16
