"""What a run computes on: said, and a GPU that torch can't use is never passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.models.device import Build, find_device, judge_device, nvidia_sign

PLAIN, CUDA = Build(version="2.13.0+cpu", cuda=""), Build(version="2.13.0", cuda="13.0")


def test_a_processor_build_beside_an_nvidia_device_is_told_what_to_install() -> None:
    found = judge_device("", PLAIN, "/dev/nvidia0")
    assert found.name == "cpu" and found.describe() == "cpu (torch 2.13.0+cpu)"
    assert found.warning.startswith("/dev/nvidia0 tells of an NVIDIA device, and torch 2.13.0+cpu is built for")
    assert "pip install --force-reinstall -c constraints.txt 'torch===2.13.0'" in found.warning


def test_a_build_with_cuda_that_finds_no_device_is_told_where_to_look() -> None:
    found = judge_device("", CUDA, "/usr/bin/nvidia-smi")
    assert found.name == "cpu" and "CUDA_VISIBLE_DEVICES" in found.warning and "install" not in found.warning


@pytest.mark.parametrize(
    ("used", "build", "sign", "name"), [("NVIDIA H100", CUDA, "/dev/nvidia0", "NVIDIA H100"), ("", PLAIN, "", "cpu")]
)
def test_nothing_is_warned_of_where_nothing_lies_idle(used: str, build: Build, sign: str, name: str) -> None:
    found = judge_device(used, build, sign)
    assert found.name == name and not found.warning


def test_a_device_shows_by_its_node_or_by_the_drivers_program(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()  # there without a device too
    assert nvidia_sign(tmp_path, lambda name: None) == ""
    assert nvidia_sign(tmp_path, lambda name: f"/usr/bin/{name}") == "/usr/bin/nvidia-smi"
    (tmp_path / "nvidia0").touch()
    assert nvidia_sign(tmp_path, lambda name: None) == str(tmp_path / "nvidia0")


def test_this_machines_device_is_the_one_that_lineages_name() -> None:
    from training.models.opening import device_name

    assert find_device().name == device_name()
