"""What Slurm's commands print is read whatever their bytes are."""

from launch.slurm import client


def test_bytes_that_are_no_text_are_replaced(command) -> None:
    command("squeue", r"printf '7|RUNNING|n\xff1|||caf\xe9\n'")
    command("sacct", r"printf '8|FAILED|n\xff\n'")
    jobs = client.query_jobs(["7", "8"])
    assert jobs["7"].nodes == "n\N{REPLACEMENT CHARACTER}1"
    assert (jobs["7"].state, jobs["8"].state) == ("RUNNING", "FAILED")
