"""Takes declared members out of archives.

Nothing is unpacked as a whole: one member is read by its exact name and written to a path of ours, so no name inside an
archive can choose where bytes land. Links are refused, and reading stops past the declared size.
"""

from __future__ import annotations

import gzip
import lzma
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from paperworks.kit.assets.errors import SourceError, one_line

_CHUNK = 1 << 20
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)


def extract(container: Path, member: str, target: Path, limit: int) -> None:
    """Writes one member to `target`.

    Args:
        container: A zip (wheel), tar (any compression), Debian package or unpacked folder.
        member: Exact name inside, without a leading "./".
        target: The file to write.
        limit: Size in bytes that the member must not exceed.

    Raises:
        SourceError: There is no such regular file inside, it is too large, or the archive is damaged.
    """
    try:
        if container.is_dir():
            _from_folder(container, member, target, limit)
        elif _is_deb(container):
            _from_deb(container, member, target, limit)
        elif zipfile.is_zipfile(container):
            with zipfile.ZipFile(container) as archive, archive.open(member) as stream:
                _copy(stream, target, limit, member)
        else:
            with tarfile.open(container) as tar:
                _from_tar(tar, member, target, limit)
    except KeyError as error:
        raise SourceError(f"{container.name} has no member {member!r}") from error
    except _DAMAGED as error:
        raise SourceError(f"{container.name} is no readable archive ({one_line(error)})") from error


def _is_deb(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(8) == b"!<arch>\n"


def _from_folder(folder: Path, member: str, target: Path, limit: int) -> None:
    path = folder / member
    if not path.is_file():
        raise KeyError(member)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SourceError(f"{member!r} leads out of its folder")
    with path.open("rb") as stream:
        _copy(stream, target, limit, member)


def _from_tar(archive: tarfile.TarFile, member: str, target: Path, limit: int) -> None:
    for info in archive:  # in order, so that a stream works too
        if info.name.removeprefix("./") != member:
            continue
        stream = archive.extractfile(info) if info.isreg() else None
        if stream is None:
            raise SourceError(f"{member!r} is a link or a folder, not a file")
        return _copy(stream, target, limit, member)
    raise KeyError(member)


def _from_deb(path: Path, member: str, target: Path, limit: int) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(path)]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise SourceError("dpkg-deb is not on this machine") from error
    with process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                _from_tar(archive, member, target, limit)
        finally:
            process.kill()  # the rest of the package is of no use


def _copy(stream: IO[bytes], target: Path, limit: int, member: str) -> None:
    left = limit
    with target.open("wb") as out:
        while chunk := stream.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise SourceError(f"{member!r} is larger than the {limit} bytes declared")
            out.write(chunk)
