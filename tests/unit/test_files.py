import errno
import os
import resource
import stat
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from polyphrase.errors import BadInput
from polyphrase.files import disk_errors, whole_file, write_text


def test_text_arrives_whole_and_alone(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "folder" / "a.txt", "ä\n")
    assert (tmp_path / "new" / "folder" / "a.txt").read_bytes() == "ä\n".encode()
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir()] == ["a.txt"]


def test_a_reader_sees_the_old_file_until_the_block_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")
    with whole_file(file) as temporary:
        temporary.write_text("new")
        assert file.read_text() == "old"
        assert temporary.parent == tmp_path  # a rename inside one file system is atomic
    assert file.read_text() == "new"


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt()])
def test_a_failed_block_leaves_the_old_file_and_no_trace(
    tmp_path: Path, failure: BaseException
) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def fail_half_way() -> None:
        with whole_file(file) as temporary:
            temporary.write_text("ne")
            raise failure

    with pytest.raises(type(failure)):
        fail_half_way()
    assert file.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_two_writers_of_one_path_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    with whole_file(file) as first, whole_file(file) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert file.read_text() == "first"  # the one that ended last


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_what_is_not_a_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(BadInput, match="is not a file that can be replaced"):
            write_text(path, "x")
    assert pipe.is_fifo()


def test_a_parent_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(BadInput, match=r"a\.txt: "):
        write_text(tmp_path / "a.txt" / "b.txt", "x")


def test_a_full_disk_is_one_sentence_and_the_old_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def write_to_a_full_disk() -> None:
        with whole_file(file) as temporary:
            temporary.unlink()
            temporary.symlink_to("/dev/full")
            temporary.write_text("new")

    with pytest.raises(BadInput) as refused:
        write_to_a_full_disk()
    assert str(refused.value) == (
        f"no space left on the disk that holds {file}: free some and run again"
    )
    assert file.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_by_number(number: int) -> None:
    with (
        pytest.raises(BadInput, match="no space left on the disk that holds here"),
        disk_errors("here"),
    ):
        raise OSError(number, os.strerror(number))


def test_safetensors_hands_the_number_on_in_its_message() -> None:
    text = "Error while serializing: I/O error: No space left on device (os error 28)"
    with (
        pytest.raises(BadInput, match="no space left on the disk that holds here"),
        disk_errors("here"),
    ):
        raise SafetensorError(text)
    with pytest.raises(SafetensorError, match="header too small"), disk_errors("here"):
        raise SafetensorError("header too small")


def test_refused_permission_names_the_path() -> None:
    with (
        pytest.raises(BadInput, match=r"^/root/a\.txt: Permission denied; give another path"),
        disk_errors("/root/a.txt"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", "/root/.a.txt.0badcafe")


def test_a_read_only_place_is_refused_in_a_sentence() -> None:
    # Neither the superuser nor anyone else may create files there.
    with pytest.raises(BadInput, match=r"^/proc/"):
        write_text("/proc/polyphrase.txt", "x")


def test_an_error_about_another_file_names_that_file(tmp_path: Path) -> None:
    def read_what_is_not_there() -> None:
        with whole_file(tmp_path / "a.txt") as temporary:
            temporary.write_text((tmp_path / "source.txt").read_text())

    with pytest.raises(BadInput, match=r"source\.txt: No such file or directory; check the name$"):
        read_what_is_not_there()
    assert not list(tmp_path.iterdir())


def test_a_reader_that_left_is_no_fault_of_a_disk() -> None:
    with pytest.raises(BrokenPipeError), disk_errors("here"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_torch_says_only_where_it_noticed(tmp_path: Path) -> None:
    """What `torch.save` raises when the system takes no more of a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with (
            pytest.raises(BadInput, match="a file there could not be written to its end: see that"),
            disk_errors(tmp_path),
        ):
            torch.save(torch.zeros(10_000), tmp_path / "state.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for text in ("of ours", "inline_container.cc:145] . PytorchStreamReader failed reading"):
        with pytest.raises(RuntimeError), disk_errors(tmp_path):
            raise RuntimeError(text)


def test_an_error_without_a_number_is_not_the_disk() -> None:
    with pytest.raises(OSError, match="from a library"), disk_errors("here"):
        raise OSError("from a library")
