"""The hub's three files as far as their schema is known, with invented content."""

import pyarrow as pa
import pyarrow.parquet as parquet

ROW = {
    "question": "Who keeps it?",
    "answer": "Lia Brandt",
    "canary": "canary GUID 0",
    "urls": ["https://x.example/3"],
    "freshness": "fast-changing",
    "question_types": ["advanced reasoning", "temporal tracking"],
    "effective_year": "2024",
    "search_results": "conflicting",
    "topic": "Music",
}


def document(i, date=None):
    """A page as the hub has it."""
    return {"title": f"T{i}", "text": f"Text {i}.", "url": f"https://x.example/{i}", "date": date}


def write_files(folder, golds=True):
    """Writes the three files and returns the folder."""
    rows = [ROW, {**ROW, "question": "Which?", "effective_year": "before 2024", "freshness": "never-changing"}]
    long = [
        {
            **row,
            **{f"{k}_docs": [document(i, "2021-02-03" if i % 2 else None) for i in range(k)] for k in (12, 20, 30)},
            **({"golds": [document(3, "2021-02-03")]} if golds else {}),
            "hard_negatives": [document(i) for i in range(2)],
        }
        for row in rows
    ]
    for name, content in (("seal-0", rows), ("seal-hard", rows * 2), ("longseal", long)):
        parquet.write_table(pa.Table.from_pylist(content), folder / f"{name}.parquet")
    return folder
