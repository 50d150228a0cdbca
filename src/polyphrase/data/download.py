"""Download of one file: resumed where it broke off, kept only if its SHA-256 is the known one."""

import hashlib
import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path

from ..errors import BadInput
from ..files import disk_errors

logger = logging.getLogger(__name__)

_CHUNK = 1 << 14


def download(
    url: str,
    path: str | Path,
    sha256: str,
    attempts: int = 5,
    wait: float = 1.0,
    timeout: float = 30.0,
) -> Path:
    """Bring `url` to `path`; a file that is there already and has the hash is left alone.

    What has arrived lies in `path` + `.part`. An interrupted transfer asks for the rest (HTTP
    `Range`), now or in a later run; a server that does not know ranges sends the whole again.

    Args:
        url: where the file is.
        path: where it goes; it appears there whole or not at all.
        sha256: what its bytes must hash to, in hex.
        attempts: connections in a row that may bring nothing before giving up.
        wait: seconds before the second of them; each next one waits twice as long.
        timeout: seconds without a byte after which a connection counts as broken.

    Raises:
        BadInput: when the server refuses, stays away, or sends other bytes than expected.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    with disk_errors(path):
        if path.exists() and _sha256(path) == sha256:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
    resumed = _size(part) > 0
    failures = 0
    while True:
        before = _size(part)
        try:
            _fetch_rest(url, part, timeout)
            break
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise BadInput(f"{url}: the server answers {error.code} {error.reason}") from None
            reason = f"the server answers {error.code} {error.reason}"
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        failures = 0 if _size(part) > before else failures + 1
        if failures == attempts:
            raise BadInput(
                f"{url} cannot be fetched ({reason}); check the network and run again: "
                f"the {_size(part):,} bytes that arrived are kept"
            )
        logger.info("%s: %s after %d bytes; asking for the rest", url, reason, _size(part))
        if failures:
            time.sleep(wait * 2 ** (failures - 1))
    with disk_errors(path):
        found = _sha256(part)
        if found == sha256:
            part.replace(path)
            return path
        part.unlink()
    if resumed:  # what lay there may have been the part of another file
        return download(url, path, sha256, attempts, wait, timeout)
    raise BadInput(
        f"{url} sent other bytes than expected (SHA-256 {found[:12]}…, not {sha256[:12]}…), "
        "so nothing was kept; run again, or report that the file has changed"
    )


def _fetch_rest(url: str, part: Path, timeout: float) -> None:
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing follows what we have: it is whole, or too long and no good
            return
        raise
    resumed = response.status == 206
    with response, disk_errors(part), part.open("ab" if resumed else "wb") as file:
        while chunk := _read(response):
            file.write(chunk)
    if response.length:  # a connection that ends early looks like the end of the file
        raise http.client.IncompleteRead(b"", response.length)


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except OSError as error:  # of the connection: kept apart from what the disk may say
        raise http.client.HTTPException(str(error) or type(error).__name__) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
