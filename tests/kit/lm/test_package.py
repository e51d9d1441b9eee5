"""The package itself: nothing heavy at import, and one line where an extra is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import paperworks
from paperworks.kit import lm


def run(code: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(paperworks.__file__).parents[1])
    begin = "import sys; sys.path.insert(0, sys.argv[1]);"
    return subprocess.run([sys.executable, "-c", begin + code, source], capture_output=True, text=True, check=False)


def test_every_name_is_there() -> None:
    assert lm.__all__
    assert set(lm.__all__) <= set(dir(lm))
    for name in lm.__all__:
        assert getattr(lm, name).__doc__


def test_import_loads_no_torch() -> None:
    done = run("import paperworks.kit.lm; sys.exit(str(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules))))")
    assert done.stderr.strip() == "[]"


def test_missing_extra_is_one_line() -> None:
    done = run("sys.modules['torch'] = None; from paperworks.kit.lm import load_minilm")
    assert done.stderr.splitlines()[-1] == "ImportError: kit.lm needs 'torch': pip install 'paperworks[llm]'"
