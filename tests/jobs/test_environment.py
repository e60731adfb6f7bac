"""A job sets what torch, Triton, NCCL and gloo read, unless the user or the site has set it."""

from pathlib import Path

import pytest

from tests.real_runs import finished

SETTINGS = ("PYTORCH_", "TORCH", "TRITON_", "GLOO_")


def settings(commands: str, run: Path, **changes: str) -> dict[str, str]:
    """The variables that lines of shell set, after the functions of the job; all else is silent."""
    script = f"source jobs/agents.sh; source jobs/environment.sh; {commands}; env"
    own = {"PATH": "/usr/bin:/bin", "ATTEMPT": str(run / "attempts" / "002")}
    done = finished("bash", "-euo", "pipefail", "-c", script, env=own | changes)
    assert (done.returncode, done.stderr) == (0, "")
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if name.startswith(SETTINGS)}


def test_gpus_get_an_allocator_and_a_flight_recorder(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    found = settings("umask 002; set_gpu_defaults", tmp_path)
    assert found == {
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/attempts/002/ranks/nccl-",
    }


def test_runs_share_kernels_where_nobody_else_can_plant_code(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    shared, own = tmp_path / ".cache" / "ditbench" / "kernels", tmp_path / "cache"
    for mode, folder in ((None, shared), (0o770, own)):
        if mode:
            shared.chmod(mode)
        assert settings("umask 002; keep_kernels", tmp_path, HOME=str(tmp_path)) == {
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TRITON_CACHE_DIR": f"{folder}/triton",
        }
        assert folder.stat().st_mode & 0o777 == 0o700


def test_without_a_home_kernels_are_kept_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = settings("keep_kernels", tmp_path, HOME=str(tmp_path / "file"))
    assert found["TRITON_CACHE_DIR"] == f"{tmp_path}/cache/triton"


@pytest.mark.parametrize("older", [True, False])
def test_what_is_set_stays_also_if_it_is_empty(older: bool, tmp_path: Path) -> None:
    name = "PYTORCH_CUDA_ALLOC_CONF" if older else "PYTORCH_ALLOC_CONF"
    mine = {name: "", "TRITON_CACHE_DIR": "/mine", "TORCH_FR_BUFFER_SIZE": "0"}
    found = settings("keep_kernels; set_gpu_defaults", tmp_path, **mine)
    assert {key: found[key] for key in mine} == mine
    assert len([key for key in found if "ALLOC_CONF" in key]) == 1


ROUTE = "10.0.0.1 via 10.1.0.1 dev {} src 10.0.0.7 uid 1000 \\\\    cache"
GETENT = "getent() { [[ $* == 'ahosts head' ]] && echo '10.0.0.1 STREAM head'; }"


@pytest.mark.parametrize(
    ("ip", "interface"),
    [
        (f"[[ $* == '-o route get 10.0.0.1' ]] && echo '{ROUTE.format('ib0')}'", "ib0"),
        (f"echo '{ROUTE.format('lo')}'", None),
        ("echo 'RTNETLINK answers: Network is unreachable' >&2; return 2", None),
        ("return 127", None),
    ],
    ids=["a route", "loopback", "no route", "no ip"],
)
def test_gloo_gets_the_interface_that_leads_to_another_node(
    ip: str, interface: str | None, tmp_path: Path
) -> None:
    found = settings(f"{GETENT}; ip() {{ {ip}; }}; set_gloo_interface head", tmp_path)
    assert found.get("GLOO_SOCKET_IFNAME") == interface


@pytest.mark.parametrize("peer", ["unknown", ""])
def test_without_an_address_gloo_chooses_itself(peer: str, tmp_path: Path) -> None:
    ip = "ip() { echo '1.1.1.1 dev eth0 src 1.1.1.2'; }"
    assert settings(f"{GETENT}; {ip}; set_gloo_interface '{peer}'", tmp_path) == {}


def test_an_interface_of_the_site_stays(tmp_path: Path) -> None:
    ip = f"ip() {{ echo '{ROUTE.format('eth0')}'; }}"
    words = f"{GETENT}; {ip}; set_gloo_interface head"
    assert settings(words, tmp_path, GLOO_SOCKET_IFNAME="ib1") == {"GLOO_SOCKET_IFNAME": "ib1"}


def test_nodes_know_their_own_address_and_that_of_another_one() -> None:
    addresses = "a1 10.0.0.1\na10 10.0.0.10\nb2 10.0.0.2"
    lines = [f"NodeName={line.split()[0]} Arch=x86_64 NodeAddr={line.split()[1]} NodeHostName=h"
             for line in addresses.splitlines()]  # fmt: skip
    shown = "\n".join(lines)
    for here, own, other in (("a1", "10.0.0.1", "10.0.0.10"), ("a10", "10.0.0.10", "10.0.0.1")):
        done = finished(
            "bash", "-euo", "pipefail", "-c",
            f"source jobs/agents.sh; scontrol() {{ echo '{shown}'; }}; list_addresses; "
            "NODE_ADDRESSES=$(list_addresses); own_address; another_address",
            env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": here, "SLURM_JOB_NODELIST": "x"},
        )  # fmt: skip
        assert done.stdout == f"{addresses}\n{own}\n{other}\n"
