"""Files that are either whole or not there, and one sentence for what the disk refuses."""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from .errors import BadInput


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place when the block ends without error.

    A reader sees the old file or the new one, never a part; a failed block leaves no trace. A link
    stays a link: what it points to is replaced.
    """
    path = Path(path)
    with disk_errors(path):
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise BadInput(f"{path} is not a file that can be replaced: name another")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(mode)  # a library that writes the file itself may have narrowed it
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turn what the operating system says of `path` into one sentence for the user.

    An error that names another file, as a reader inside the block may raise, is told of that file.
    """
    path = Path(path)
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, BrokenPipeError):  # a reader left: no fault
            raise
        raise BadInput(_sentence(_about(error, path), error.errno)) from error
    except SafetensorError as error:
        # safetensors writes files itself and hands the system's number on inside its message.
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise BadInput(_sentence(path, int(number[1]))) from error
    except RuntimeError as error:
        # torch.save keeps the system's number to itself, and says where in its C++ it noticed.
        if "inline_container" not in str(error) or "PytorchStreamReader" in str(error):
            raise
        raise BadInput(
            f"{path}: a file there could not be written to its end: "
            "see that the disk has space and run again"
        ) from error


def _about(error: OSError, path: Path) -> str | Path:
    named = error.filename
    if not isinstance(named, str | os.PathLike):  # a write to an open file names none
        return path
    is_temporary = Path(named).name.startswith(f".{path.resolve().name}.")
    return path if is_temporary else Path(named)


def _sentence(path: str | Path, number: int) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk that holds {path}: free some and run again"
    remedy = _REMEDIES.get(number)
    return f"{path}: {os.strerror(number)}" + (f"; {remedy}" if remedy else "")


_REMEDIES = {
    errno.ENOENT: "check the name",
    errno.EISDIR: "name a file in it",
    errno.EEXIST: "give a path that is free",
    errno.ENOTDIR: "a folder is needed there",
    errno.EACCES: "give another path or get the right to this one",
    errno.EPERM: "give another path or get the right to this one",
    errno.EROFS: "give a path on another disk",
}
