"""What Inspect AI finds under the name ``paperworks``: the model provider and the tasks of every paper.

Inspect imports this module through the entry point of `pyproject.toml` when it meets a name that starts with
``paperworks/``. A paper adds tasks by a module `tasks.py` in its room; nothing is listed here.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import paperworks.kit.lm.inspect_provider  # noqa: F401  (registers the provider)

for _module in sorted(Path(__file__).parent.glob("*/*/tasks.py")):
    import_module(f"paperworks.{_module.parent.parent.name}.{_module.parent.name}.tasks")
