"""Inspect AI's provider ``paperworks``: models of the kit, or of a folder, answer on this machine.

``--model paperworks/smollm2`` is SmolLM2-135M-Instruct in float32; ``--model paperworks/NAME -M folder=PATH`` is any
causal model that `transformers` loads from a folder. Requests that come at the same time are answered in one batch.
Without a temperature the likeliest token is taken. What a request draws depends on its seed alone, not on its batch;
without a seed it is drawn anew, so that epochs differ.

With ``extra_body={"guided_choice": ["...", "..."]}`` (vLLM's name for it) the answer is the choice with the highest
summed log-probability, and ``output.metadata["choice_logprobs"]`` has the sums. A prompt that leaves no room in the
model's context gives an empty answer whose stop reason is "model_length".
"""

from __future__ import annotations

import json
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, Generic, TypeVar

import anyio
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    TopLogprob,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

MODELS = ("smollm2",)
BATCH = 32
DEFAULT_MAX_TOKENS = 256
_NOT_OFFERED = ("frequency_penalty", "presence_penalty", "logit_bias", "best_of", "response_schema")
_TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_TOOLS = (
    "You may call these functions:\n{tools}\nTo call one, reply with nothing but\n"
    '<tool_call>{{"name": "<function>", "arguments": {{"<argument>": "<value>"}}}}</tool_call>'
)

In = TypeVar("In")
Out = TypeVar("Out")


class Gatherer(Generic[In, Out]):
    """Answers requests that come close together in one call, on a thread of its own.

    Args:
        answer: Maps a list of requests to as many answers.
        batch: Requests in one call at most.
        wait: Seconds of silence after which a batch that is not full is closed.
    """

    def __init__(self, answer: Callable[[list[In]], Sequence[Out]], batch: int = BATCH, wait: float = 0.05) -> None:
        if batch < 1:
            raise ValueError(f"batch_size is {batch}; allowed: 1 or more")
        if not wait >= 0:
            raise ValueError(f"wait is {wait}; allowed: 0 seconds or more")
        self._answer, self.batch, self.wait = answer, batch, wait
        self._queue: queue.Queue[tuple[In, Future[Out]] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.sizes: list[int] = []  # of the calls so far

    def submit(self, request: In) -> Future[Out]:
        """Queues a request; the future has its answer, or what `answer` raised."""
        future: Future[Out] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="paperworks-generation")
                self._thread.start()
            self._queue.put((request, future))
        return future

    def close(self) -> None:
        """Ends the thread after what is queued."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)
                self._thread = None

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, closing = [first], False
            while len(batch) < self.batch:
                try:
                    more = self._queue.get(timeout=self.wait)
                except queue.Empty:
                    break
                if more is None:
                    closing = True
                    break
                batch.append(more)
            live = [(request, future) for request, future in batch if future.set_running_or_notify_cancel()]
            if live:
                self._run(live)
            if closing:
                return

    def _run(self, live: list[tuple[In, Future[Out]]]) -> None:
        self.sizes.append(len(live))
        try:
            answers = list(self._answer([request for request, _ in live]))
            if len(answers) != len(live):
                raise RuntimeError(f"{len(answers)} answers to {len(live)} requests")
        except Exception as error:
            for _, future in live:
                future.set_exception(error)
            return
        for (_, future), answer in zip(live, answers, strict=True):
            future.set_result(answer)


async def _wait_for(future: Future[Out]) -> Out:
    """Waits under whichever event loop Inspect runs."""
    try:
        while not future.done():
            await anyio.sleep(0.005)
    except BaseException:
        future.cancel()
        raise
    return future.result()


@lru_cache(maxsize=2)
def _load(name: str, folder: str | None, device: str) -> tuple[Any, Any]:
    if folder is None:
        from paperworks.kit.lm.smollm2 import load_smollm2

        return load_smollm2(device)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from paperworks.kit.lm.loading import no_progress_bar

    with no_progress_bar():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.to(device).eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


class PaperworksAPI(ModelAPI):
    """A model on this machine.

    Args:
        model_name: "smollm2", or any name together with `folder`.
        base_url: Not used.
        api_key: Not used.
        config: Generation settings.
        folder: A model that `transformers` saved.
        device: Where it runs.
        batch_size: Requests answered at once, at most.
        wait: Seconds to wait for further requests of a batch.

    Raises:
        ValueError: An unknown model without a folder, or unknown arguments.
        AssetMissing: The model is not on this machine; the message names the command that gets it.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - the signature of Inspect's providers
        folder: str | None = None,
        device: str = "cpu",
        batch_size: int = BATCH,
        wait: float = 0.05,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        if model_args:
            raise ValueError(f"unknown {', '.join(model_args)}; allowed: folder, device, batch_size, wait")
        if folder is None and model_name not in MODELS:
            raise ValueError(f"model is {model_name!r}; allowed: {', '.join(MODELS)}, or any name with -M folder=PATH")
        self.model, self.tokenizer = _load(model_name, None if folder is None else str(folder), device)
        self.gatherer: Gatherer[Any, Any] = Gatherer(self._answer, int(batch_size), float(wait))

    def _answer(self, requests: list[Any]) -> list[Any]:
        """Choices one by one (they share their prompts' beginnings), all generations together."""
        from paperworks.kit.lm.decoding import generate_batch
        from paperworks.kit.lm.likelihood import continuation_logprobs

        answers: list[Any] = [None] * len(requests)
        choosing = [i for i, request in enumerate(requests) if isinstance(request, tuple)]
        rest = [i for i in range(len(requests)) if i not in set(choosing)]
        if choosing:
            prompts, options = zip(*(requests[i] for i in choosing), strict=True)
            sums = continuation_logprobs(self.model, self.tokenizer, prompts, options, add_special_tokens=False)
            for i, one in zip(choosing, sums, strict=True):
                answers[i] = one
        if rest:
            made = generate_batch(self.model, self.tokenizer, [requests[i] for i in rest])
            for i, answer in zip(rest, made, strict=True):
                answers[i] = answer
        return answers

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Answers, or chooses by likelihood when `config.extra_body` has "guided_choice"."""
        begun = time.perf_counter()
        if refused := [name for name in _NOT_OFFERED if getattr(config, name, None) not in (None, 0, 0.0, {})]:
            raise ValueError(f"{', '.join(refused)}: not offered by paperworks/{self.model_name}; leave it out")
        prompt = self.prompt(input, tools if tool_choice != "none" else [])
        choices = (config.extra_body or {}).get("guided_choice")
        if choices is not None:
            return await self._choose(prompt, choices, begun)
        count = config.num_choices or 1
        seed = secrets.randbits(32) if config.seed is None else config.seed
        futures = [self.gatherer.submit(self._request(prompt, config, seed + i)) for i in range(count)]
        try:
            answers = [await _wait_for(future) for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        made = sum(len(answer.tokens) for answer in answers)
        read = answers[0].input_tokens
        return ModelOutput(
            model=self.model_name,
            choices=[self._completion(answer, tools, bool(config.logprobs)) for answer in answers],
            usage=ModelUsage(input_tokens=read, output_tokens=made, total_tokens=read + made),
            time=time.perf_counter() - begun,
        )

    async def _choose(self, prompt: str, choices: Any, begun: float) -> ModelOutput:
        if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
            raise ValueError(f"guided_choice is {choices!r}; allowed: a list of one text or more, none of them empty")
        # Without a chat template the prompt ends in "assistant:", which a space follows.
        ends = choices if self.tokenizer.chat_template else [f" {choice}" for choice in choices]
        read, *lengths = (len(self.tokenizer(t, add_special_tokens=False)["input_ids"]) for t in (prompt, *ends))
        fits = read + max(lengths) <= self.model.config.max_position_embeddings
        sums = await _wait_for(self.gatherer.submit((prompt, ends))) if fits else []
        best = choices[max(range(len(sums)), key=lambda i: sums[i])] if fits else ""
        message = ChatMessageAssistant(content=best, model=self.model_name, source="generate")
        return ModelOutput(
            model=self.model_name,
            choices=[ChatCompletionChoice(message=message, stop_reason="stop" if fits else "model_length")],
            usage=ModelUsage(input_tokens=read, total_tokens=read),
            time=time.perf_counter() - begun,
            metadata={"choice_logprobs": dict(zip(choices, sums, strict=True))} if fits else None,
        )

    def _request(self, prompt: str, config: GenerateConfig, seed: int) -> Any:
        from paperworks.kit.lm.decoding import Request

        return Request(
            prompt=prompt,
            max_tokens=DEFAULT_MAX_TOKENS if config.max_tokens is None else config.max_tokens,
            temperature=config.temperature or 0.0,
            top_p=1.0 if config.top_p is None else config.top_p,
            top_k=config.top_k or 0,
            seed=seed,
            stop=tuple(config.stop_seqs or ()),
            top_logprobs=(config.top_logprobs or 0) if config.logprobs else 0,
        )

    def _completion(self, answer: Any, tools: list[ToolInfo], logprobs: bool) -> ChatCompletionChoice:
        content, calls = _tool_calls(answer.text) if tools else (answer.text, [])
        message = ChatMessageAssistant(
            content=content, tool_calls=calls or None, model=self.model_name, source="generate"
        )
        places = [
            Logprob(
                token=token.text,
                logprob=token.logprob,
                bytes=list(token.text.encode()),
                top_logprobs=[TopLogprob(token=text, logprob=value) for text, value in token.top] or None,
            )
            for token in answer.tokens
        ]
        return ChatCompletionChoice(
            message=message,
            stop_reason="tool_calls" if calls else answer.stop,
            logprobs=Logprobs(content=places) if logprobs else None,
        )

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo] = ()) -> str:
        """The text that the model reads: its chat template, or "role: text" lines where it has none.

        Args:
            messages: The conversation.
            tools: Functions that it is told of, in a system message.
        """
        plain = [{"role": _role(message), "content": _content(message)} for message in messages]
        if tools:
            listed = "\n".join(
                json.dumps(
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters.model_dump(exclude_none=True),
                    }
                )
                for tool in tools
            )
            plain.insert(0, {"role": "system", "content": _TOOLS.format(tools=listed)})
        if self.tokenizer.chat_template:
            text = self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
            return str(text)
        return "".join(f"{turn['role']}: {turn['content']}\n" for turn in plain) + "assistant:"

    async def count_text_tokens(self, text: str) -> int:
        """Counts with the model's own tokenizer."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    async def tokenize(self, text: str) -> list[int]:
        """Token ids of a text."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def max_tokens(self) -> int:
        """Tokens generated when a task does not say."""
        return DEFAULT_MAX_TOKENS

    def max_connections(self) -> int:
        """As many requests at a time as fit into a batch."""
        return self.gatherer.batch

    def close(self) -> None:
        """Ends the thread that answers."""
        self.gatherer.close()


def _role(message: ChatMessage) -> str:
    return "user" if isinstance(message, ChatMessageTool) else message.role


def _content(message: ChatMessage) -> str:
    if not isinstance(message.content, str) and any(part.type not in ("text", "reasoning") for part in message.content):
        raise ValueError(f"a message of {message.role!r} holds more than text; allowed: text alone")
    if isinstance(message, ChatMessageTool):
        return f"<tool_response>{message.error.message if message.error else message.text}</tool_response>"
    calls = message.tool_calls if isinstance(message, ChatMessageAssistant) else None
    written = [
        f"<tool_call>{json.dumps({'name': call.function, 'arguments': call.arguments})}</tool_call>"
        for call in calls or []
    ]
    return "\n".join(filter(None, [message.text, *written]))


def _tool_calls(text: str) -> tuple[str, list[ToolCall]]:
    calls = []
    for i, match in enumerate(_TOOL_CALL.finditer(text)):
        try:
            said = json.loads(match.group(1))
            name, arguments = str(said["name"]), dict(said.get("arguments") or {})
            calls.append(ToolCall(id=f"call_{i}_{secrets.token_hex(4)}", function=name, arguments=arguments))
        except (ValueError, KeyError, TypeError) as error:
            problem = f"the call could not be read ({error}): {match.group(1)}"
            calls.append(
                ToolCall(id=f"call_{i}_{secrets.token_hex(4)}", function="unknown", arguments={}, parse_error=problem)
            )
    return _TOOL_CALL.sub("", text).strip(), calls


@modelapi(name="paperworks")
def paperworks() -> type[ModelAPI]:
    """The provider, for names that start with ``paperworks/``."""
    return PaperworksAPI
