"""Inspect tasks, solvers, scorers and metrics, run by Inspect itself."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("inspect_ai", reason="pip install 'paperworks[evaluation]'")

from inspect_ai import eval
from inspect_ai.model import GenerateConfig, ModelAPI, ModelOutput, get_model, modelapi

from paperworks.evaluation.sealqa import (
    NoisySearchIndex,
    Question,
    extract,
    longseal,
    longseal_sample,
    sample_corpus,
    seal_0,
    sealqa_sample,
    simpleqa_judge,
)
from paperworks.evaluation.sealqa.scorers import _LETTER
from paperworks.evaluation.sealqa.solvers import search
from paperworks.evaluation.sealqa.tasks import with_date
from paperworks.kit.assets import cache_folder, status

from .recorded import write_files

needed = pytest.mark.skipif(status("smollm2").state == "missing", reason="not on this machine: paperworks data smollm2")


@pytest.fixture
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("hub"))


class Scripted(ModelAPI):
    """A provider that asks a function, or takes outputs in turn; Inspect's own mock counts tokens over the network."""

    def __init__(self, model_name, base_url=None, api_key=None, config=GenerateConfig(), answer=None):  # noqa: B008
        super().__init__(model_name, base_url, api_key, [], config)
        self.answer = answer

    async def generate(self, input, tools, tool_choice, config):
        if callable(self.answer):
            return self.answer(input, tools, tool_choice, config)
        return self.answer.pop(0) if self.answer else ModelOutput.from_content("scripted", "no answer")

    async def count_text_tokens(self, text):
        return len(text.split())


modelapi(name="scripted")(Scripted)


def answering(answer=None):
    """A model that says what a function of the conversation says, or what a list holds."""
    answer = list(answer) if isinstance(answer, list) else answer
    return get_model("scripted/reader", answer=answer, memoize=False)


def run(task, model, tmp_path, **settings):
    log = eval(task, model=model, log_dir=str(tmp_path), display="none", **settings)[0]
    assert log.status == "success", log.error
    return log


def metrics_of(log):
    return {name: metric.value for name, metric in log.results.scores[0].metrics.items()}


def test_the_oracle_setting_scores_full_with_a_reader_and_the_closed_book_nothing(tmp_path):
    questions = {q.question: q for q in sample_corpus(0, 6, distractors=8, length="short").questions}

    def read(input, tools, tool_choice, config):
        text = input[-1].text
        question = next(q for q in questions if q in text)
        found = extract(question, text.partition("\n")[2].partition("\n\n")[0]) if "[1]" in text else ""
        return ModelOutput.from_content("reader", f"Answer: {found or 'I do not know'}")

    log = run(sealqa_sample(n=6, search="oracle"), answering(read), tmp_path)
    found = metrics_of(log)
    assert found["accuracy"] == found["attempted"] == found["given_attempted"] == found["f_score"] == 1
    assert found["accuracy_low"] == pytest.approx(0.6097, abs=1e-3)
    assert found["accuracy_high"] == 1
    for sample in log.samples:
        assert sample.metadata["evidence"] == [f"{sample.id}-gold"]
        assert sample.metadata["gold_position"] == 0
        assert len(sample.metadata["evidence_digest"]) == 64
    assert {name for name in found if name.startswith("question_types: ")}
    closed = metrics_of(run(sealqa_sample(n=6, search="none"), answering(read), tmp_path))
    assert (closed["accuracy"], closed["attempted"]) == (0, 0)


def test_fresh_prompt_shows_what_the_search_found_and_logs_it(tmp_path):
    seen = []

    def read(input, tools, tool_choice, config):
        seen.append(input[-1].text)
        return ModelOutput.from_content("reader", "I do not know")

    log = run(sealqa_sample(n=3, search="freshprompt", pages=4), answering(read), tmp_path)
    corpus = sample_corpus(0, 3, distractors=8, length="short")
    index = NoisySearchIndex(corpus.documents)
    for sample, question in zip(log.samples, corpus.questions, strict=True):
        pages = index.search(question.question, 4)
        assert sample.metadata["corpus_digest"] == index.digest
        assert set(sample.metadata["evidence"]) == {page.id for page in pages}
        prompt = next(text for text in seen if question.question in text)
        places = [prompt.index(page.text) for page in sorted(pages, key=lambda page: page.date or "")]
        assert places == sorted(places)
    noisy = [
        run(sealqa_sample(n=3, noise=1.0, pages=3), answering(read), tmp_path).samples[0].metadata["evidence"]
        for _ in range(2)
    ]
    assert noisy[0] == noisy[1]  # noise depends on the sample, not on the run
    assert noisy[0] != log.samples[0].metadata["evidence"][:3]


def test_a_model_that_searches_gets_pages_and_is_stopped_at_the_limit(tmp_path):
    queries = []

    def read(input, tools, tool_choice, config):
        if tools and "[gives up]" not in input[0].text and len(queries) < 2:
            queries.append("keeper of the organ")
            return ModelOutput.for_tool_call("reader", "search", {"query": queries[-1]})
        said = next((m.text for m in reversed(input) if m.role == "tool"), "")
        return ModelOutput.from_content("reader", f"Answer: {'seen' if 'no date' in said or '20' in said else 'blind'}")

    log = run(sealqa_sample(n=1, search="tool", pages=2), answering(read), tmp_path)
    sample = log.samples[0]
    assert sample.metadata["searches"] == 2
    assert sample.output.completion == "Answer: seen"
    assert [m.role for m in sample.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]

    def always(input, tools, tool_choice, config):
        if tools:
            return ModelOutput.for_tool_call("reader", "search", {"query": "x"})
        return ModelOutput.from_content("reader", "enough")

    log = run(sealqa_sample(n=1, search="tool"), answering(always), tmp_path)
    assert log.samples[0].metadata["searches"] == 10
    assert log.samples[0].output.completion == "enough"


def test_noise_of_a_searching_model_depends_on_its_sample_and_pages_go_into_the_log(tmp_path):
    def once(input, tools, tool_choice, config):
        if not any(m.role == "tool" for m in input):
            return ModelOutput.for_tool_call("reader", "search", {"query": "the keeper of the organ"})
        return ModelOutput.from_content("reader", "enough")

    def found(**settings):
        log = run(sealqa_sample(n=2, search="tool", pages=3, noise=1.0), answering(once), tmp_path, **settings)
        return [(s.metadata["evidence"], [m.text for m in s.messages if m.role == "tool"]) for s in log.samples]

    both = found()
    alone = found(sample_id=["q1"])
    assert [len(evidence) for evidence, _ in both] == [3, 3]
    assert both[0] != both[1]
    assert alone == both[1:]  # whatever other samples have searched before


def test_the_search_tool_returns_pages_of_the_index():
    import anyio

    corpus = sample_corpus(0, 2, distractors=3)
    index = NoisySearchIndex(corpus.documents)

    async def call():
        return await search(index, 2)(query=corpus.questions[0].question)

    text = anyio.run(call)
    assert text.count("\n\n") == 1
    assert all(page.text in text for page in index.search(corpus.questions[0].question, 2))


@pytest.mark.parametrize(("share", "place"), [(0.0, 0), (1.0, 3)])
def test_longseal_sample_puts_the_gold_page_where_it_is_told(tmp_path, share, place):
    log = run(longseal_sample(k=4, gold_position=share, n=3), answering(), tmp_path)
    for sample in log.samples:
        assert sample.metadata["evidence"][place] == f"{sample.id}-gold"
        assert len(sample.metadata["evidence"]) == 4
        assert sample.messages[0].text.count("\n\n") == 5
    assert metrics_of(log)["accuracy"] == 0


def test_the_official_tasks_on_a_recorded_schema(tmp_path, folder):
    corpus = NoisySearchIndex(sample_corpus(0, 2, distractors=2).documents).save(tmp_path)
    right = [ModelOutput.from_content("x", "Answer: Lia Brandt")] * 2
    log = run(seal_0(folder=str(folder)), answering(right), tmp_path)
    assert metrics_of(log)["accuracy"] == 1
    assert log.eval.metadata["revision"].startswith("folder")
    assert "(as of 2024)" in log.samples[0].messages[0].text
    assert "as of" not in log.samples[1].messages[0].text  # its answer never changes
    assert log.samples[0].metadata["canary"] == "canary GUID 0"
    fresh = run(seal_0(folder=str(folder), search="freshprompt", corpus=str(corpus)), answering(right), tmp_path)
    assert len(fresh.samples[0].metadata["evidence"]) == 6
    long = run(longseal(k=20, gold_position=1.0, folder=str(folder)), answering(right), tmp_path)
    assert len(long.samples[0].metadata["evidence"]) == 20
    assert long.samples[0].metadata["gold_position"] == 1
    assert long.samples[0].messages[0].text.index("[20] T3") > 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: sealqa_sample(search="web"), "search='web'; allowed are 'none', 'freshprompt', 'tool', 'oracle'"),
        (lambda f: seal_0(search="tool", folder=f), "search='tool' needs corpus=FILE, frozen pages"),
        (lambda f: seal_0(search="oracle", folder=f), "question '0' of seal_0 has no gold page in this revision"),
        (lambda f: longseal(k=13, folder=f), "k=13; allowed are 12, 20, 30"),
    ],
)
def test_tasks_that_cannot_be_made(make, words, folder):
    with pytest.raises(ValueError, match=words):
        make(str(folder))


def test_a_gold_page_that_cannot_be_told_cannot_be_placed(tmp_path):
    where = str(write_files(tmp_path, golds=False))
    with pytest.raises(ValueError, match=r"gold_position=0.5: no gold page can be told in this revision"):
        longseal(gold_position=0.5, folder=where)
    assert [d["title"] for d in longseal(folder=where).dataset[0].metadata["documents"][:2]] == ["T0", "T1"]


@pytest.mark.parametrize(
    ("reply", "letters"),
    [("B", {"B"}), ("Grade: A.", {"A"}), ("A refusal, so C", {"C"}), ("A is right", {"A"}), ("A or B", {"A", "B"})],
)
def test_letters_in_what_a_judge_says(reply, letters):
    assert set(_LETTER.findall(reply)) == letters


def test_a_date_is_named_unless_the_question_has_one_or_needs_none():
    assert with_date(Question("1", "Who?", "x", freshness="fast", effective_year=2024)) == "Who? (as of 2024)"
    assert with_date(Question("1", "Who?", "x", freshness="fast"), "May 2026") == "Who? (as of May 2026)"
    assert with_date(Question("1", "Who as of 2020?", "x", freshness="fast")) == "Who as of 2020?"
    assert with_date(Question("1", "Who?", "x", freshness="never")) == "Who?"
    assert " 20" in with_date(Question("1", "Who?", "x", freshness="slow"))


def test_a_model_judges_and_what_it_says_without_a_letter_is_judged_by_rules(tmp_path):
    seen = []

    def judge(input, tools, tool_choice, config):
        seen.append(input[-1].text)
        letter = "The grade is B." if len(seen) == 1 else "hard to say"
        return ModelOutput.from_content("judge", letter)

    task = sealqa_sample(n=2, search="oracle")
    task.scorer = [simpleqa_judge(answering(judge))]
    answers = [q.answer for q in sample_corpus(0, 2, distractors=8, length="short").questions]
    model = answering([ModelOutput.from_content("x", f"Answer: {answer}") for answer in answers])
    log = run(task, model, tmp_path, max_samples=1, max_connections=1)
    scores = [sample.scores["simpleqa_judge"] for sample in log.samples]
    assert sorted(score.metadata["grade"] for score in scores) == ["A", "B"]
    assert [score.metadata.get("unreadable", False) for score in scores].count(True) == 1
    gold = sample_corpus(0, 2, distractors=8, length="short").questions[0].gold.text
    assert all(answer in "".join(seen) for answer in answers)
    assert gold not in "".join(seen)  # the judge sees no documents


def test_several_epochs_are_means_that_metrics_take(tmp_path):
    answers = [q.answer for q in sample_corpus(0, 1, distractors=8, length="short").questions]
    outputs = [ModelOutput.from_content("x", text) for text in (answers[0], answers[0], "I do not know", "Zorro Quast")]
    log = run(sealqa_sample(n=1, search="oracle"), answering(outputs), tmp_path, epochs=4, max_connections=1)
    found = metrics_of(log)
    assert (found["accuracy"], found["attempted"]) == (0.5, 0.75)
    assert found["given_attempted"] == pytest.approx(2 / 3)


def test_choosing_needs_a_server_that_offers_it_and_options(tmp_path):
    asked = []

    def choose(input, tools, tool_choice, config: GenerateConfig):
        asked.append(config.extra_body["guided_choice"])
        return ModelOutput.from_content("x", asked[-1][0])

    log = run(sealqa_sample(n=4, choose=True, pages=2), answering(choose), tmp_path)
    options = [sorted(set(sample.metadata["options"].values())) for sample in log.samples]
    assert sorted(map(str, asked)) == sorted(map(str, options))
    assert all(len(sample.metadata["evidence"]) == 2 for sample in log.samples)


@needed
@pytest.mark.slow
def test_the_command_of_the_documentation_runs_offline(tmp_path):
    """`inspect eval paperworks/sealqa_sample --model paperworks/smollm2`, without any way to a network."""
    command = "from inspect_ai._cli.main import main; main()"
    arguments = ["eval", "paperworks/sealqa_sample", "--model", "paperworks/smollm2", "-T", "n=3", "-T", "choose=true"]
    environment = {"PATH": "", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment["PAPERWORKS_CACHE"] = str(cache_folder())
    options = ["--display", "none", "--log-format", "json", "--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        [sys.executable, "-c", command, *arguments, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "logs").glob("*.json")
    content = json.loads(log.read_text())
    assert content["status"] == "success"
    assert content["eval"]["model"] == "paperworks/smollm2"
    assert content["results"]["completed_samples"] == 3
    sums = [sample["output"]["metadata"]["choice_logprobs"] for sample in content["samples"]]
    assert all(np.isfinite(list(row.values())).all() for row in sums)
