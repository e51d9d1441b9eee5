from __future__ import annotations

from paperworks import readme


def test_generated_tables_are_up_to_date() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert readme.render(text) == text, "run `make readme`"


def test_a_verdict_that_changes_shows() -> None:
    text = readme.README.read_text(encoding="utf-8")
    changed = text.replace("**undecided**", "**supported**").replace("**untested**", "**supported**")
    assert changed != text
    assert readme.render(changed) == text
