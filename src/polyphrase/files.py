"""Files that are either whole or not there: atomic writes, and messages for what the disk refuses."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import BadInput


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place when the block ends without error.

    A reader sees the old file or the new one, never a part; a failed block leaves no trace.
    """
    path = Path(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turn what the operating system says of `path` into one sentence for the user."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BadInput(
                f"no space left on the disk that holds {path}: free some and run again"
            ) from error
        if error.errno is None:
            raise
        raise BadInput(f"{path}: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
