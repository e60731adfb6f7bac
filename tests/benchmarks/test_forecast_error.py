"""The benchmark of forecasts by cards."""

import pytest

from benchmarks.forecast_error import main


def test_cpu_time_of_several_threads_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--clock", "cpu"])
    assert "--clock cpu sums the time of all threads: add --threads 1" in capsys.readouterr().err
