"""A GPU is recognised only by the name that its driver reports."""

import re

import pytest

from configs.gpus import find_gpu, load_gpus, named_gpu

# Names as drivers report them.
REPORTED = {
    "NVIDIA A40": "a40",
    "NVIDIA RTX A6000": "a6000",
    "A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100-PCIE-40GB": "a100-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-80gb-sxm",
    "NVIDIA A100 80GB PCIe": "a100-80gb-pcie",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H200": "h200",
    "NVIDIA H100 NVL": "h100nvl",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA H200 NVL": "h200nvl",
    "NVIDIA L40S": "l40s",
    "NVIDIA L40": "l40",
    "NVIDIA A30": "a30",
    "NVIDIA A10": "a10",
    "Tesla V100-SXM2-16GB": "v100-16gb-sxm",
    "Tesla V100-SXM2-32GB": "v100-32gb-sxm",
    "Tesla V100-PCIE-16GB": "v100-16gb-pcie",
    "Tesla V100-PCIE-32GB": "v100-32gb-pcie",
    "NVIDIA B200": "b200",
    "AMD Instinct MI300X": "mi300x",
}


@pytest.mark.parametrize("model", REPORTED)
def test_exactly_one_type_matches_a_reported_name(model):
    gpus = load_gpus()
    answering = [
        name
        for name, gpu in gpus.items()
        if any(re.fullmatch(pattern, model) for pattern in gpu.names)
    ]
    assert answering == [REPORTED[model]]
    assert find_gpu(model) == gpus[REPORTED[model]]


@pytest.mark.parametrize(
    "model",
    ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM-64GB", "NVIDIA H800",
     "NVIDIA A10G", "NVIDIA GH200 144G HBM3e", "NVIDIA RTX 6000 Ada Generation", "NVIDIA A40-48Q",
     "a40", ""],
)  # fmt: skip
def test_a_partition_of_a_gpu_or_a_similar_model_is_not_the_gpu(model):
    assert find_gpu(model) is None


def test_every_type_has_a_reported_name():
    assert set(REPORTED.values()) == set(load_gpus())


# Total memory in GiB, as users' programs printed it.
@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("a40", 44.4), ("a100-80gb-sxm", 79.1), ("h100-sxm", 79.1), ("h200", 139.8),
        ("h100nvl", 93.0), ("gh200", 94.5), ("l40s", 44.4), ("l40", 44.4), ("a30", 23.5),
        ("a10", 21.99), ("v100-16gb-sxm", 15.75), ("v100-32gb-pcie", 31.75),
    ],
)  # fmt: skip
def test_the_memory_is_what_cuda_reports(name, gib):
    assert load_gpus()[name].memory_gb * 1e9 / 2**30 == pytest.approx(gib, abs=0.1)


def test_a_family_does_not_take_the_memory_of_a_model_with_more():
    assert named_gpu("h100").name == "h100-sxm"
    assert named_gpu("a100").name == "a100-80gb-sxm"
