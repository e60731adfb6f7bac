"""No file makes a reader wait, or holds more than it may."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.files import open_regular, read_bytes, read_lines, read_text

READERS: list[Callable[[Path], object]] = [
    open_regular,
    read_bytes,
    read_text,
    lambda path: list(read_lines(path)),
]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("make", [pipe, endless, terminal, listener, folder])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=f"{tmp_path}/x"):
        read(tmp_path / "x")


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**40)
    for read in READERS:
        with pytest.raises(OSError, match="larger than"):
            read(tmp_path / "x")
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_bytes(Path(__file__), most=100)


def test_a_link_is_followed_unless_it_may_not_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "b") == "text"
    with pytest.raises(OSError, match="symbolic"):
        read_text(tmp_path / "b", follow_links=False)


def test_a_log_may_grow_while_it_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\n\xff\n")
    lines = read_lines(log)
    assert next(lines) == "a\n"
    with log.open("a") as file:
        file.write("b")
    assert list(lines) == ["\N{REPLACEMENT CHARACTER}\n", "b"]


def test_a_line_of_any_length_is_read_in_parts(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**25 + 1)
    assert [len(line) for line in read_lines(tmp_path / "x")] == [2**24, 2**24, 1]
