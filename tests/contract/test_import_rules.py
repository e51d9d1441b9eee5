"""A new family must be named in the import rules of pyproject.toml, or they would not hold for it."""

from __future__ import annotations

import tomllib

from paperworks.claims import catalog


def test_every_family_is_named_in_the_import_rules() -> None:
    rules = tomllib.loads((catalog.PACKAGE.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]
    families = {
        f"paperworks.{room.folder.parent.name}"
        for room in catalog.rooms().values()
        if room.folder.is_relative_to(catalog.PACKAGE)
    }
    assert families
    by_name = {contract["name"]: contract for contract in rules["contracts"]}
    methods = [c for name, c in by_name.items() if name.startswith("A method ")]
    assert families <= {module for contract in methods for module in contract["source_modules"]}
    for name in ("The frame knows no paper and no kit", "The kit knows neither papers nor the frame"):
        assert families <= set(by_name[name]["forbidden_modules"])
