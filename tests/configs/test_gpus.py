"""A GPU is recognised only by the name that its driver reports."""

import re

import pytest

from configs.errors import ConfigError
from configs.gpus import find_gpu, load_gpus

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
    ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM-64GB", "NVIDIA H100 NVL", "NVIDIA H800",
     "NVIDIA H200 NVL", "NVIDIA RTX 6000 Ada Generation", "NVIDIA A40-48Q", "a40", ""],
)  # fmt: skip
def test_a_partition_of_a_gpu_or_a_similar_model_is_not_the_gpu(model):
    assert find_gpu(model) is None


def test_every_type_has_a_reported_name():
    assert set(REPORTED.values()) == set(load_gpus())


def test_derived_rates_are_consistent_across_types():
    for gpu in load_gpus().values():
        assert gpu.peak_tflops.bf16 == gpu.peak_tflops.fp16
        assert gpu.peak_tflops.tf32 == pytest.approx(gpu.peak_tflops.bf16 / 2, rel=0.002)
        assert gpu.peak_tflops.fp32 < gpu.peak_tflops.tf32


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x: {names: [A]}", "x.peak_tflops: Field required"),
        ("x: {names: ['('], peak_tflops: {}}", r"x.names: .*not a regular expression"),
        ("x: {names: [A], memroy_gb: 1}", "x.memroy_gb: Extra inputs"),
        ("x: 3", "x: Input should be"),
    ],
)
def test_a_malformed_file_is_refused(line, message, tmp_path):
    (tmp_path / "gpus.yaml").write_text(line)
    with pytest.raises(ConfigError, match=message):
        load_gpus(tmp_path / "gpus.yaml")
