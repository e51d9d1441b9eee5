"""Members come out of archives one by one, and nothing else does."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from paperworks.kit.assets.errors import SourceError
from paperworks.kit.assets.unpack import extract

needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not on this machine")
KINDS = ["zip", "tar.gz", "tar.xz", pytest.param("deb", marks=needs_dpkg)]
LINKING = ["tar.gz", pytest.param("deb", marks=needs_dpkg)]


def tarball(members: dict[str, bytes], links: dict[str, str], mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name, to in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, to
            tar.addfile(info)
    return out.getvalue()


def debian(data: bytes) -> bytes:
    """Frames a data.tar.gz as a Debian package."""
    parts = {"debian-binary": b"2.0\n", "control.tar.gz": tarball({"./control": b""}, {}, "w:gz"), "data.tar.gz": data}
    out = b"!<arch>\n"
    for name, body in parts.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    return out


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., Path]:
    def build(kind: str, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
        path = tmp_path / "pack" / f"archive.{kind}"
        path.parent.mkdir(exist_ok=True)
        if kind == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in members.items():
                    archive.writestr(name, data)
        elif kind == "deb":
            path.write_bytes(debian(tarball(members, links or {}, "w:gz")))
        else:
            path.write_bytes(tarball(members, links or {}, f"w:{kind.removeprefix('tar.')}"))
        return path

    return build


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_declared_member_leaves_the_archive(kind: str, tmp_path: Path, pack: Callable[..., Path]) -> None:
    absolute = str(tmp_path / "evil-absolute")
    archive = pack(kind, {"../evil-up": b"!", absolute: b"!", "data/good": b"good", "data/evil-other": b"!"})
    target = tmp_path / "out" / "target"
    target.parent.mkdir()
    extract(archive, "data/good", target, 4)
    assert target.read_bytes() == b"good"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [archive.name, "target"]


@pytest.mark.parametrize("kind", KINDS)
def test_absent_member(kind: str, tmp_path: Path, pack: Callable[..., Path]) -> None:
    with pytest.raises(SourceError, match="no member 'data/goof'"):
        extract(pack(kind, {"data/good": b"good"}), "data/goof", tmp_path / "target", 4)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_stops_past_the_declared_size(kind: str, tmp_path: Path, pack: Callable[..., Path]) -> None:
    archive = pack(kind, {"bomb": bytes(20_000_000)})
    with pytest.raises(SourceError, match="larger than the 10 bytes declared"):
        extract(archive, "bomb", tmp_path / "target", 10)
    assert (tmp_path / "target").stat().st_size < 2_000_000


@pytest.mark.parametrize("kind", LINKING)
def test_links_are_refused(kind: str, tmp_path: Path, pack: Callable[..., Path]) -> None:
    archive = pack(kind, {"inside": b"inside"}, {"link": "inside", "out": "/etc/hostname"})
    for member in ("link", "out"):
        with pytest.raises(SourceError, match="is a link or a folder"):
            extract(archive, member, tmp_path / "target", 100)


def test_unpacked_folder_does_not_lead_out(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "good").write_text("good")
    extract(folder, "good", tmp_path / "target", 4)
    assert (tmp_path / "target").read_text() == "good"
    with pytest.raises(SourceError, match="leads out"):
        extract(folder, "link", tmp_path / "target", 100)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("harm", ["cut", "zeros in the middle", "text"])
def test_damage_is_one_line(kind: str, harm: str, tmp_path: Path, pack: Callable[..., Path]) -> None:
    noise = bytes((i * i * 31 + i // 7) % 251 for i in range(60_000))
    archive = pack(kind, {"noise": noise})
    raw = archive.read_bytes()
    half = len(raw) // 2
    harmed = {
        "cut": raw[:half],
        "zeros in the middle": raw[:half] + bytes(64) + raw[half + 64 :],
        "text": b"no archive",
    }
    archive.write_bytes(harmed[harm])
    with pytest.raises(SourceError) as caught:
        extract(archive, "noise", tmp_path / "target", len(noise))
    assert "\n" not in str(caught.value)
