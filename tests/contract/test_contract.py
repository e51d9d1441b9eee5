"""Every paper keeps the contract; `paperworks lint` runs the same checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paperworks.claims import catalog, contract
from paperworks.kit import assets

ROOMS = [room for room in catalog.rooms().values() if room.folder.is_relative_to(catalog.PACKAGE)]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.slug)
def test_contract(room: catalog.Room, record_property: Callable[[str, object], None]) -> None:
    report = contract.check(room, list(assets.catalog()))
    record_property("contract", f"{room.slug}: {sum(report.seconds.values()):.1f} CPU-s {report.seconds}")
    missing = [problem for problem in report.problems if "is not on this machine; get it with" in problem]
    assert [problem for problem in report.problems if problem not in missing] == []
    if missing:
        pytest.skip(f"the rest of the contract holds: {missing[0]}")
