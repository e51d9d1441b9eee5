"""The Inspect provider: batches, log-probabilities, choices; and any other provider against a real server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

pytest.importorskip("inspect_ai", reason="pip install 'paperworks[evaluation]'")
fastapi = pytest.importorskip("fastapi", reason="fastapi comes with inspect-ai")

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    get_model,
)
from inspect_ai.scorer import includes, match  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402
from inspect_ai.tool import ToolCall, ToolInfo, ToolParams  # noqa: E402

from paperworks.kit.assets import status  # noqa: E402
from paperworks.kit.lm import character_tokenizer  # noqa: E402
from paperworks.kit.lm.decoding import Request, generate_batch  # noqa: E402
from paperworks.kit.lm.inspect_provider import Gatherer, PaperworksAPI, _tool_calls  # noqa: E402
from paperworks.kit.lm.likelihood import continuation_logprobs  # noqa: E402

needed = pytest.mark.skipif(status("smollm2").state == "missing", reason="not on this machine: paperworks data smollm2")


@pytest.fixture(scope="module")
def small() -> tuple[Any, Any]:
    """A Llama of two layers whose weights are random, with a token a character."""
    tokenizer = character_tokenizer([chr(i) for i in range(32, 127)] + ["\n"])
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.4,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config).eval(), tokenizer


@pytest.fixture(scope="module")
def folder(small: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small")
    small[0].save_pretrained(path)
    small[1].save_pretrained(path)
    return path


@torch.no_grad()
def by_hand(model: Any, tokenizer: Any, prompt: str, option: str) -> float:
    """The sum in float64, from logits of the whole text, no cache."""
    start, end = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, option))
    logits = model(torch.tensor([start + end])).logits[0].double()
    chosen = logits.log_softmax(-1)[len(start) - 1 : -1].gather(1, torch.tensor(end)[:, None])
    return float(chosen.sum())


def test_options_after_prompts_with_common_beginnings(small):
    prompts = ["abc def", "abc deg", "abc def", "xyz", "abc def longer", "a"]
    options = [[" one", " two hundred", "3"], [" one"], [" x", " one"], ["q", "r"], [" one", " onf"], ["b"]]
    found = continuation_logprobs(*small, prompts, options)
    for prompt, own, sums in zip(prompts, options, found, strict=True):
        assert sums == pytest.approx([by_hand(*small, prompt, option) for option in own], rel=1e-4)


def test_common_beginnings_are_computed_once(small, monkeypatch):
    model, tokenizer = small
    seen = []
    forward = type(model.model).forward

    def counting(self, *args, **kwargs):
        seen.append(kwargs["input_ids"].numel())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model.model), "forward", counting)
    shared = "a long beginning of forty characters, ok "
    continuation_logprobs(model, tokenizer, [shared + "x", shared + "y", shared + "z"], [["1"], ["2"], ["3"]])
    assert sorted(seen) == [1, 1, len(shared) + 1]


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        (["a"], [], r"prompts has 1 and options 0 entries"),
        ([""], [["b"]], r"prompts\[0\] is '', which has no tokens"),
        (["a"], [["b", ""]], r"options\[0\] is \['b', ''\]; one option or more"),
        (
            ["a", "x" * 250],
            [["b"], ["short", "y" * 7]],
            r"prompts\[1\] and its longest option have 257 tokens; allowed: 256",
        ),
    ],
)
def test_what_has_no_likelihood(small, prompts, options, words):
    with pytest.raises(ValueError, match=words):
        continuation_logprobs(*small, prompts, options)


def test_a_batch_of_greedy_answers_is_what_transformers_generates(small):
    model, tokenizer = small
    prompts = ["hello", "a much longer prompt than that", "x y z"]
    requests = [Request(prompt, max_tokens=n) for prompt, n in zip(prompts, (9, 4, 7), strict=True)]
    answers = generate_batch(model, tokenizer, requests)
    for prompt, answer, n in zip(prompts, answers, (9, 4, 7), strict=True):
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        out = model.generate(**ids, max_new_tokens=n, do_sample=False)[0, ids["input_ids"].shape[1] :]
        assert answer.text == tokenizer.decode(out, skip_special_tokens=True)
        assert answer.input_tokens == ids["input_ids"].shape[1]
        said = "".join(token.text for token in answer.tokens)
        sums = sum(token.logprob for token in answer.tokens)
        if answer.stop == "max_tokens":
            assert sums == pytest.approx(by_hand(model, tokenizer, prompt, said), rel=1e-4)


def test_positions_that_are_learnt_start_at_zero_in_every_row_of_a_batch(small):
    """Rotary positions would hide a shift; prompts of two lengths are padded on the left."""
    tokenizer = small[1]
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64, initializer_range=0.4
    )
    model = GPT2LMHeadModel(config).eval()
    prompts = ["hello", "a much longer prompt than that"]
    answers = generate_batch(model, tokenizer, [Request(prompt, max_tokens=6) for prompt in prompts])
    for prompt, answer in zip(prompts, answers, strict=True):
        said = "".join(token.text for token in answer.tokens)
        sums = sum(token.logprob for token in answer.tokens)
        assert sums == pytest.approx(by_hand(model, tokenizer, prompt, said), rel=1e-3)


def test_what_a_request_draws_does_not_depend_on_its_batch(small):
    one = Request("hello", max_tokens=12, temperature=1.3, top_p=0.9, top_k=20, seed=7)
    others = [Request(f"other {i}", max_tokens=3 + i, temperature=2.0, seed=i) for i in range(4)]
    alone = generate_batch(*small, [one])[0]
    among = generate_batch(*small, [*others[:2], one, *others[2:]])[2]
    assert among.text == alone.text
    assert generate_batch(*small, [Request("hello", max_tokens=12, temperature=1.3, seed=8)])[0].text != alone.text


def test_sampling_follows_the_distribution_within_top_k_and_top_p(small):
    model, tokenizer = small
    ids = torch.tensor([tokenizer("hello", add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        weights, order = (model(ids).logits[0, -1] / 3.0).softmax(-1).sort(descending=True)
    texts = [tokenizer.decode([t]) for t in order[:3].tolist()]
    requests = [Request("hello", max_tokens=1, temperature=3.0, top_k=3, seed=i) for i in range(600)]
    drawn = [answer.tokens[0].text for answer in generate_batch(model, tokenizer, requests)]
    assert set(drawn) <= set(texts)
    expected = weights[:3] / weights[:3].sum()
    for text, share in zip(texts, expected.tolist(), strict=True):
        assert drawn.count(text) / 600 == pytest.approx(share, abs=5 * (share * (1 - share) / 600) ** 0.5 + 0.002)
    nucleus = Request("hello", max_tokens=1, temperature=3.0, top_p=float(weights[0]) * 0.99, seed=3)
    assert generate_batch(model, tokenizer, [nucleus])[0].tokens[0].text == texts[0]


def test_answers_end_at_stop_texts_limits_and_the_end_of_the_context(small):
    model, tokenizer = small
    full = generate_batch(model, tokenizer, [Request("hello", max_tokens=10)])[0].text
    stop = full[4:6]
    cut = generate_batch(model, tokenizer, [Request("hello", max_tokens=10, stop=(stop,))])[0]
    assert cut.text == full[: full.find(stop)]
    assert cut.stop == "stop"
    both = (full[4:6], full[3:6])  # one token completes them
    end = min(full.find(stop) + len(stop) for stop in both)
    cut = generate_batch(model, tokenizer, [Request("hello", max_tokens=10, stop=both)])[0]
    assert cut.text == full[: min(full[:end].find(stop) for stop in both if stop in full[:end])]
    long, over = generate_batch(model, tokenizer, [Request("x" * 250, max_tokens=50), Request("x" * 300)])
    assert (len(long.tokens), long.stop) == (6, "model_length")
    assert (over.text, over.stop, over.input_tokens) == ("", "model_length", 300)
    with torch.no_grad():
        top = model(torch.tensor([tokenizer("hello", add_special_tokens=False)["input_ids"]])).logits[0, -1].argmax()
    model.generation_config.eos_token_id, before = int(top), model.generation_config.eos_token_id
    ended = generate_batch(model, tokenizer, [Request("hello", max_tokens=10)])[0]
    model.generation_config.eos_token_id = before
    assert (len(ended.tokens), ended.stop) == (1, "stop")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; allowed: 1 or more"),
        ({"temperature": -1.0}, "temperature is -1.0; allowed: 0 or more"),
        ({"top_p": 0.0}, "top_p is 0.0; allowed: above 0, at most 1"),
        ({"top_k": -1}, "top_k is -1"),
    ],
)
def test_settings_out_of_range(setting, words):
    with pytest.raises(ValueError, match=words):
        Request("x", **setting)


# --- gathering -----------------------------------------------------------------------------------------------------


def test_requests_that_come_together_are_answered_together():
    gatherer: Gatherer[int, int] = Gatherer(lambda numbers: [n * n for n in numbers], batch=8, wait=0.2)
    futures = [gatherer.submit(n) for n in range(20)]
    assert [future.result(5) for future in futures] == [n * n for n in range(20)]
    assert gatherer.sizes == [8, 8, 4]
    gatherer.close()


def test_an_error_reaches_every_request_of_its_batch_and_no_other():
    def answer(numbers: list[int]) -> list[int]:
        if 3 in numbers:
            raise RuntimeError("three")
        return numbers

    gatherer: Gatherer[int, int] = Gatherer(answer, batch=2, wait=0.2)
    futures = [gatherer.submit(n) for n in (1, 3, 5, 6)]
    for future in futures[:2]:
        with pytest.raises(RuntimeError, match="three"):
            future.result(5)
    assert [future.result(5) for future in futures[2:]] == [5, 6]
    gatherer.close()


def test_too_few_answers_are_an_error_and_no_wait_for_ever():
    gatherer: Gatherer[int, int] = Gatherer(lambda numbers: numbers[1:], batch=2, wait=0.2)
    futures = [gatherer.submit(n) for n in (1, 2)]
    for future in futures:
        with pytest.raises(RuntimeError, match="1 answers to 2 requests"):
            future.result(5)
    gatherer.close()


def test_a_cancelled_request_is_not_answered_and_a_closed_gatherer_can_start_again():
    release = threading.Event()
    seen: list[int] = []

    def answer(numbers: list[int]) -> list[int]:
        release.wait(5)
        seen.extend(numbers)
        return numbers

    gatherer: Gatherer[int, int] = Gatherer(answer, batch=1, wait=0.01)
    first, second = gatherer.submit(1), gatherer.submit(2)
    second.cancel()
    release.set()
    assert first.result(5) == 1
    gatherer.close()
    third: Future[int] = gatherer.submit(3)
    assert third.result(5) == 3
    assert seen == [1, 3]
    gatherer.close()


# --- the provider ----------------------------------------------------------------------------------------------------


def provider(folder: Path, **arguments: Any) -> Any:
    return get_model("paperworks/small", folder=str(folder), wait=0.2, memoize=False, **arguments)


def test_inspect_finds_the_provider_and_concurrent_requests_share_a_batch(folder):
    model = provider(folder, batch_size=4)
    assert type(model.api) is PaperworksAPI
    outputs: dict[int, Any] = {}

    async def ask(i: int) -> None:
        outputs[i] = await model.generate(f"question {i}", config=GenerateConfig(max_tokens=3 + i))

    async def ask_all() -> None:
        async with anyio.create_task_group() as group:
            for i in range(6):
                group.start_soon(ask, i)

    anyio.run(ask_all)
    assert sorted(model.api.gatherer.sizes) == [2, 4]
    assert model.api.max_connections() == 4
    for i, output in outputs.items():
        prompt = model.api.prompt([ChatMessageUser(content=f"question {i}")])
        alone = generate_batch(model.api.model, model.api.tokenizer, [Request(prompt, 3 + i)])[0]
        assert output.completion == alone.text
        assert output.usage.output_tokens == len(alone.tokens)
        assert output.usage.input_tokens == alone.input_tokens
        assert output.choices[0].stop_reason in ("max_tokens", "stop")
    model.api.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_log_probabilities_choices_and_several_answers(folder, backend):
    if backend == "trio":
        pytest.importorskip("trio", reason="trio is not installed")
    model = provider(folder)

    async def ask() -> None:
        config = GenerateConfig(max_tokens=4, logprobs=True, top_logprobs=3)
        choice = (await model.generate("hello", config=config)).choices[0]
        assert len(choice.logprobs.content) == 4
        for place in choice.logprobs.content:
            tops = [top.logprob for top in place.top_logprobs]
            assert place.logprob == max(tops)  # greedy
            assert tops == sorted(tops, reverse=True)
            assert len(tops) == 3
        plain = await model.generate("hello", config=GenerateConfig(max_tokens=4))
        assert plain.choices[0].logprobs is None
        several = await model.generate(
            "hello", config=GenerateConfig(max_tokens=8, temperature=1.5, num_choices=3, seed=1)
        )
        assert len({c.message.text for c in several.choices}) == 3
        options = ["Paris", "Rome", "a longer name"]
        chosen = await model.generate("hello", config=GenerateConfig(extra_body={"guided_choice": options}))
        prompt = model.api.prompt([ChatMessageUser(content="hello")])
        sums = {option: by_hand(model.api.model, model.api.tokenizer, prompt, option) for option in options}
        assert chosen.metadata["choice_logprobs"] == pytest.approx(sums, rel=1e-4)
        assert chosen.completion == max(sums, key=lambda option: sums[option])
        with pytest.raises(ValueError, match=r"guided_choice is \[\]; allowed: a list of one text or more"):
            await model.generate("hello", config=GenerateConfig(extra_body={"guided_choice": []}))

    anyio.run(ask, backend=backend)
    model.api.close()


def test_settings_that_are_not_offered_seeds_and_prompts_without_room(folder):
    model = provider(folder)

    async def say(**settings: Any) -> Any:
        return await model.generate("hello", config=GenerateConfig(**{"max_tokens": 12, **settings}))

    async def ask() -> None:
        with pytest.raises(ValueError, match="frequency_penalty: not offered by paperworks/small"):
            await say(frequency_penalty=0.5)
        with pytest.raises(ValueError, match="max_tokens is 0; allowed: 1 or more"):
            await say(max_tokens=0)
        drawn = {(await say(temperature=1.5)).completion for _ in range(3)}
        assert len(drawn) > 1  # without a seed epochs differ
        assert len({(await say(temperature=1.5, seed=5)).completion for _ in range(3)}) == 1
        full = await model.generate("x" * 300, config=GenerateConfig(extra_body={"guided_choice": ["a", "b"]}))
        assert (full.completion, full.choices[0].stop_reason) == ("", "model_length")
        model.api.tokenizer.chat_template, before = None, model.api.tokenizer.chat_template
        chosen = await model.generate("hello", config=GenerateConfig(extra_body={"guided_choice": ["a", "b"]}))
        model.api.tokenizer.chat_template = before
        sums = {c: by_hand(model.api.model, model.api.tokenizer, "user: hello\nassistant:", f" {c}") for c in "ab"}
        assert chosen.metadata["choice_logprobs"] == pytest.approx(sums, rel=1e-4)

    anyio.run(ask)
    model.api.close()


def test_every_setting_reaches_the_request_and_tools_that_may_not_be_called_are_not_told_of(folder, monkeypatch):
    api = provider(folder).api
    config = GenerateConfig(
        max_tokens=9, temperature=0.5, top_p=0.8, top_k=4, stop_seqs=["x"], logprobs=True, top_logprobs=2
    )
    assert api._request("p", config, 7) == Request("p", 9, 0.5, 0.8, 4, 7, ("x",), 2)
    assert api._request("p", GenerateConfig(), 0) == Request("p", 256)
    told: list[Any] = []
    monkeypatch.setattr(api, "prompt", lambda messages, tools: told.append(list(tools)) or "p")
    tool = ToolInfo(name="search", description="Searches.", parameters=ToolParams())
    for choice in ("none", "auto"):
        anyio.run(api.generate, [ChatMessageUser(content="x")], [tool], choice, GenerateConfig(max_tokens=1))
    assert told == [[], [tool]]
    api.close()


def test_conversations_and_tools_become_one_prompt(folder):
    model = provider(folder)
    call = ToolCall(id="1", function="search", arguments={"query": "x"})
    messages = [
        ChatMessageSystem(content="Be short."),
        ChatMessageUser(content="Who?"),
        ChatMessageAssistant(content="", tool_calls=[call]),
        ChatMessageTool(content="a page", tool_call_id="1"),
    ]
    tool = ToolInfo(name="search", description="Searches.", parameters=ToolParams())
    text = model.api.prompt(messages, [tool])
    assert text.index('"name": "search", "description": "Searches."') < text.index("Be short.")
    assert '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>' in text
    assert "<tool_response>a page</tool_response>" in text
    assert text.endswith("<assistant>")
    assert "search" not in model.api.prompt(messages[:2])
    model.api.tokenizer.chat_template, before = None, model.api.tokenizer.chat_template
    plain = model.api.prompt(messages[:2])
    model.api.tokenizer.chat_template = before
    assert plain == "system: Be short.\nuser: Who?\nassistant:"


def test_tool_calls_are_read_from_what_a_model_says():
    text, calls = _tool_calls('Let me see. <tool_call>{"name": "search", "arguments": {"query": "x y"}}</tool_call>')
    assert text == "Let me see."
    assert [(call.function, call.arguments, call.parse_error) for call in calls] == [("search", {"query": "x y"}, None)]
    _, broken = _tool_calls("<tool_call>{'name': 1}</tool_call>")
    assert "could not be read" in broken[0].parse_error
    assert _tool_calls("no call") == ("no call", [])


def test_models_and_arguments_that_are_not_there(folder):
    with pytest.raises(ValueError, match=r"model is 'other'; allowed: smollm2, or any name with -M folder=PATH"):
        get_model("paperworks/other", memoize=False)
    with pytest.raises(ValueError, match="unknown colour; allowed: folder, device, batch_size, wait"):
        provider(folder, colour="red")


def test_an_eval_runs_on_it(folder, tmp_path):
    task = Task(dataset=[Sample(input="hello", target="x"), Sample(input="there", target="y")], scorer=includes())
    model = provider(folder)
    log = eval(task, model=model, max_tokens=5, log_dir=str(tmp_path), display="none")[0]
    assert log.status == "success"
    assert model.api.gatherer.sizes == [2]


# --- another provider, a real server ---------------------------------------------------------------------------------


class Served:
    """A server of /v1/chat/completions on loopback, on a thread of its own.

    Args:
        model: A causal model.
        tokenizer: Its tokenizer.
        faults: Status of each request in turn, 0 for an answer; answers after that.
    """

    def __init__(self, model: Any, tokenizer: Any, faults: list[int]) -> None:
        import uvicorn
        from fastapi import FastAPI
        from fastapi.responses import JSONResponse

        self.seen: list[dict[str, str]] = []
        app = FastAPI()

        @app.post("/v1/chat/completions", response_model=None)
        def complete(body: dict[str, Any], authorization: str = fastapi.Header("")) -> Any:
            self.seen.append({"model": body["model"], "key": authorization})
            if faults and (status := faults.pop(0)):
                return JSONResponse({"error": {"message": "try again", "type": "fault"}}, status)
            turns = [{"role": m["role"], "content": m["content"]} for m in body["messages"]]
            prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            request = Request(prompt, max_tokens=body.get("max_tokens") or 16)
            answer = generate_batch(model, tokenizer, [request])[0]
            made = len(answer.tokens)
            return {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop" if answer.stop == "stop" else "length",
                        "message": {"role": "assistant", "content": answer.text},
                    }
                ],
                "usage": {
                    "prompt_tokens": answer.input_tokens,
                    "completion_tokens": made,
                    "total_tokens": answer.input_tokens + made,
                },
            }

        self.server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        end = time.monotonic() + 60
        while not self.server.started:
            assert self.thread.is_alive(), "the server did not start"
            assert time.monotonic() < end, "the server did not start within 60 seconds"
            time.sleep(0.02)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("uvicorn", reason="uvicorn comes with inspect-ai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running: list[Served] = []

    def start(model: Any, tokenizer: Any, faults: Sequence[int] = ()) -> Served:
        running.append(Served(model, tokenizer, list(faults)))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def test_an_openai_compatible_server_takes_the_providers_place_and_faults_are_retried(small, serve, folder, tmp_path):
    server = serve(*small, [429, 0, 500])
    other = get_model("openai-api/local/small", base_url=server.url, api_key="secret", memoize=False)
    task = Task(
        dataset=[Sample(input="hello", target="x"), Sample(input="there", target="y")],
        solver=generate(),
        scorer=match(),
    )
    settings = {"max_tokens": 6, "log_dir": str(tmp_path / "logs"), "display": "none"}
    theirs = eval(task, model=other, max_retries=2, max_connections=1, **settings)[0]
    assert theirs.status == "success", theirs.error
    assert len(server.seen) == 4  # two questions, two faults
    assert {(call["model"], call["key"]) for call in server.seen} == {("small", "Bearer secret")}
    ours = eval(task, model=provider(folder), **settings)[0]
    said = [[sample.output.completion for sample in log.samples] for log in (ours, theirs)]
    assert said[0] == said[1]
    assert all(said[0])


@pytest.mark.slow
def test_a_server_that_goes_on_failing_ends_the_eval(small, serve, tmp_path):
    server = serve(*small, [500] * 20)
    other = get_model("openai-api/local/small", base_url=server.url, api_key="secret", memoize=False)
    task = Task(dataset=[Sample(input="hello", target="x")], solver=generate(), scorer=match())
    log = eval(task, model=other, max_retries=1, log_dir=str(tmp_path), display="none")[0]
    assert log.status == "error"
    assert len(server.seen) >= 2


@needed
@pytest.mark.slow
def test_smollm2_knows_capitals_in_a_batch_by_choice_and_over_http(serve, tmp_path):
    ours = get_model("paperworks/smollm2", memoize=False)
    cities = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo"}
    task = Task(
        dataset=[Sample(input=f"What is the capital of {land}?", target=city) for land, city in cities.items()],
        solver=generate(),
        scorer=includes(),
    )
    settings = {"max_tokens": 12, "log_dir": str(tmp_path / "logs"), "display": "none"}
    log = eval(task, model=ours, **settings)[0]
    assert log.results.scores[0].metrics["accuracy"].value > 0.6  # it may go on about the country for twelve tokens
    assert 3 in ours.api.gatherer.sizes

    async def choose() -> str:
        config = GenerateConfig(extra_body={"guided_choice": ["Rome", "Paris", "Tokyo"]})
        asked = "What is the capital of Japan? Answer with the city alone."
        return (await ours.generate(asked, config=config)).completion

    assert anyio.run(choose) == "Tokyo"
    server = serve(ours.api.model, ours.api.tokenizer)
    other = get_model("openai-api/local/smollm2", base_url=server.url, api_key="none", memoize=False)
    theirs = eval(task, model=other, max_connections=1, **settings)[0]
    assert [s.output.completion for s in theirs.samples] == [s.output.completion for s in log.samples]


@pytest.mark.slow
def test_inspect_finds_the_tasks_by_name():
    """In a process of its own: the entry point, nothing imported before."""
    code = (
        "from inspect_ai._util.registry import registry_lookup\n"
        "print([registry_lookup('task', f'paperworks/{n}') is not None for n in ('sealqa_sample', 'longseal', 'none')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[True, True, False]"
