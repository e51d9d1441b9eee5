"""The official flavours: a recorded schema in parquet files (with invented content), and what fails how."""

import datetime

import pytest

from paperworks.evaluation.sealqa import load
from paperworks.evaluation.sealqa.official import REVISION, questions_from_rows

from .recorded import ROW, document, write_files


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


def test_the_flavours_from_a_folder(folder, capsys):
    loaded = load("seal_0", folder=folder)
    first, second = loaded.questions
    assert (first.question, first.answer, first.topic) == ("Who keeps it?", "Lia Brandt", "Music")
    assert first.question_types == ("advanced reasoning", "temporal tracking")
    assert (first.freshness, first.effective_year, first.conflicting) == ("fast", 2024, True)
    assert (second.freshness, second.effective_year) == ("never", None)
    assert second.metadata["raw_effective_year"] == "before 2024"
    assert first.metadata["canary"] == "canary GUID 0"
    assert first.metadata["urls"] == ["https://x.example/3"]
    assert "licence" in capsys.readouterr().err
    assert len(load("seal_hard", folder=folder).questions) == 4


def test_longseal_has_k_documents_and_finds_the_gold_one(folder):
    for k in (12, 20, 30):
        question = load("longseal", folder=folder, k=k).questions[0]
        assert question.gold.title == "T3"
        assert question.gold.kind == "gold"
        assert len(question.negatives) == k - 1
        assert question.metadata["gold_position"] == 3 / (k - 1)
        assert {page.date for page in question.negatives} == {None, "2021-02-03"}
    assert len(load("longseal", folder=folder).questions[0].negatives) == 11


def test_rows_with_columns_missing_extra_or_null():
    (plain,) = questions_from_rows([{"question": "Who?", "answer": "x"}])
    assert (plain.question_types, plain.freshness, plain.gold, plain.negatives) == ((), "", None, ())
    (more,) = questions_from_rows(
        [
            {
                **ROW,
                "novel": 7,
                "12_docs": [{**document(0), "date": datetime.date(2020, 1, 2)}, {"title": None, "text": "t"}],
                "question_types": "false-premise detection, cross-lingual reasoning",
                "effective_year": None,
            }
        ],
        k=12,
    )
    assert more.metadata["novel"] == 7
    assert more.question_types == ("false-premise detection", "cross-lingual reasoning")
    assert [page.date for page in more.negatives] == ["2020-01-02", None]
    assert more.gold is None
    with pytest.raises(ValueError, match=r"row 0 lacks answer; found columns: canary, question"):
        questions_from_rows([{"question": "Who?", "canary": "x"}])
    with pytest.raises(ValueError, match=r"row 1 lacks question; found columns: answer, question"):
        questions_from_rows([{"question": "Who?", "answer": "x"}, {"question": None, "answer": "x"}])
    with pytest.raises(ValueError, match=r"row 0 lacks 20_docs; found columns: 12_docs, answer, question"):
        questions_from_rows([{"question": "Who?", "answer": "x", "12_docs": []}], k=20)


@pytest.mark.parametrize(
    ("raw", "day"),
    [
        ("2021-02-03T10:00:00Z", "2021-02-03"),
        (datetime.datetime(2021, 2, 3, 10), "2021-02-03"),
        ("Feb 3, 2021", "2021-02-03"),
        ("3 February 2021", "2021-02-03"),
        ("February 2021", "2021-02"),
        ("2021", "2021"),
        ("3 days ago", None),
        ("", None),
        (None, None),
    ],
)
def test_days_in_whatever_spelling_sort_by_time(raw, day):
    row = {"question": "Who?", "answer": "x", "12_docs": [{"text": "t", "date": raw}]}
    assert questions_from_rows([row], 12)[0].negatives[0].date == day


def test_the_licence_is_that_of_the_revision(monkeypatch, tmp_path):
    import huggingface_hub

    from paperworks.evaluation.sealqa import official

    asked = []

    def download(repository, name, *, repo_type, revision):
        asked.append((repository, name, repo_type, revision))
        (tmp_path / name).write_text("---\nlicense: apache-2.0\n---\n")
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert official._card_licence("abc") == "apache-2.0"
    assert asked == [("vtllms/sealqa", "README.md", "dataset", "abc")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"flavour": "seal_1"}, "flavour='seal_1'; allowed are 'seal_0', 'seal_hard', 'longseal'"),
        ({"flavour": "longseal", "k": 15}, "k=15; allowed are 12, 20, 30"),
        ({"flavour": "seal_0", "k": 12}, "k=12 with flavour='seal_0'; k is for 'longseal' only"),
        ({"flavour": "seal_0", "folder": "/nowhere"}, "folder='/nowhere' has no seal-0.parquet"),
    ],
)
def test_flavours_that_are_not_there(arguments, words):
    with pytest.raises(ValueError, match=words):
        load(**arguments)


def test_offline_one_line_names_the_offline_flavour(monkeypatch, tmp_path):
    """The hub's real client, told that there is no network."""
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    words = rf"vtllms/sealqa at {REVISION[:12]} cannot be had .*paperworks/sealqa_sample"
    with pytest.raises(ConnectionError, match=words) as caught:
        load("seal_0")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_without_a_network_one_line_names_the_offline_flavour(monkeypatch, tmp_path):
    """The hub's real client, pointed at a port where nobody listens; it tries for some seconds."""
    import socket

    import datasets
    import huggingface_hub.constants

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", nobody)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", nobody)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(ConnectionError, match=r"cannot be had .*paperworks/sealqa_sample"):
        load("seal_0")
