"""The catalogue: what ships is complete, and a slip in it is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paperworks.kit.assets import AssetError, CatalogError, catalog

GOOD = """
[digits]
what = "digits"
licence = "CC0"
file = "digits.csv"
size = 3
sha256 = "{sha}"
[[digits.source]]
kind = "wheel"
package = "numbers"
version = "1.0"
path = "numbers/digits.csv"
""".format(sha="0" * 64)


def read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "assets.toml"
    path.write_text(text, encoding="utf-8")
    catalog(path)


def test_good_catalogue_is_accepted(tmp_path: Path) -> None:
    read(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('licence = "CC0"\n', "", "licence is missing"),
        ('licence = "CC0"', 'license = "CC0"', "license is unknown"),
        ('what = "digits"', "what = 7", "what is 7"),
        ('what = "digits"', 'what = " "', "what is ' '"),
        ("size = 3", "size = 0", "size is 0"),
        ("size = 3", "size = true", "size is True"),
        ("size = 3\n", "", "size is missing"),
        ("0" * 64, "abc", "sha256 is 'abc'"),
        ('file = "digits.csv"', 'file = "../digits.csv"', "file is '../digits.csv'"),
        ('path = "numbers/digits.csv"', 'path = "/etc/passwd"', "source[0].path is '/etc/passwd'"),
        ('path = "numbers/digits.csv"', r'path = "a\\..\\b"', "source[0].path is"),
        ('path = "numbers/digits.csv"', 'path = "a/./b"', "source[0].path is 'a/./b'"),
        ('kind = "wheel"', 'kind = "ftp"', "source[0].kind is 'ftp'"),
        ('kind = "wheel"\n', "", "source[0].kind is None"),
        ('version = "1.0"\n', "", "source[0].version is missing"),
        ('version = "1.0"', 'version = "1.0"\nrepo = "a/b"', "source[0].repo is unknown"),
        ('version = "1.0"', 'version = "1.0"\nverified = "yes"', "source[0].verified is 'yes'"),
        ('package = "numbers"', 'package = "--extra-option"', "source[0].package is '--extra-option'"),
        ('version = "1.0"', 'version = "1.0 -r x"', "source[0].version is '1.0 -r x'"),
        ('kind = "wheel"\npackage = "numbers"\nversion = "1.0"', 'kind = "url"\nurl = "http://x.org/a"', "url is"),
        (
            'kind = "wheel"\npackage = "numbers"\nversion = "1.0"',
            'kind = "hub"\nrepo = "a/b"\nrevision = "main"',
            "source[0].revision is 'main'; expected a commit",
        ),
        ("[[digits.source]]", "[digits.source]", "source must be one or more tables"),
        ("[[digits.source]]", '[[digits.files]]\nfile = "a"\n[[digits.source]]', "file stands beside 'files'"),
    ],
)
def test_a_slip_is_named_with_asset_and_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    assert old in GOOD
    with pytest.raises(CatalogError) as caught:
        read(tmp_path, GOOD.replace(old, new))
    message = str(caught.value)
    assert message.startswith("asset 'digits': ")
    assert key in message
    assert "\n" not in message


@pytest.mark.parametrize(("text", "said"), [("[a b]", "cannot read"), ("x = 1", "asset 'x'"), ('["../up"]', "'../up'")])
def test_what_is_no_catalogue(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CatalogError, match=said):
        read(tmp_path, text)


def test_absent_catalogue(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="cannot read the catalogue"):
        catalog(tmp_path / "none.toml")


def test_shipped_assets_are_verified_and_licensed() -> None:
    assets = catalog()
    assert {"mnist5k", "digits8x8"} <= assets.keys()
    for asset in assets.values():
        assert any(source.verified for source in asset.sources), f"{asset.name}: no test fetches it from anywhere"
        if any(source.package for source in asset.sources):
            assert asset.package_licence, f"{asset.name}: licence of its package"


def test_import_is_light() -> None:
    code = (
        "import sys, paperworks.kit.assets as a; a.catalog(); a.describe([]);"
        "heavy = {'numpy', 'pooch', 'requests', 'huggingface_hub', 'pydantic', 'filelock'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
