"""Round trips of the character and word tokenizers, and the mask of what the assistant says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from paperworks.kit.lm.tokenizers import character_tokenizer, word_tokenizer

ALPHABET = "abc019+=() \n"
CHARACTERS = character_tokenizer(ALPHABET)
WORDS = word_tokenizer(["red", "blue", "fox"])


@given(st.text(ALPHABET, max_size=30))
def test_characters_come_back(text: str) -> None:
    ids = CHARACTERS.encode(text)
    assert len(ids) == len(text)
    assert CHARACTERS.decode(ids) == text


@given(st.lists(st.sampled_from(["red", "blue", "fox"]), max_size=10))
def test_words_come_back(words: list[str]) -> None:
    ids = WORDS.encode(" ".join(words))
    assert len(ids) == len(words)
    assert WORDS.decode(ids) == " ".join(words)


def test_unknown_is_unk() -> None:
    assert CHARACTERS.encode("az") == [CHARACTERS.convert_tokens_to_ids("a"), CHARACTERS.unk_token_id]


def test_only_the_assistant_is_marked() -> None:
    chat = [{"role": "user", "content": "a+b="}, {"role": "assistant", "content": "c0"}]
    out = CHARACTERS.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, m in zip(out["input_ids"], out["assistant_masks"], strict=True) if m]
    assert CHARACTERS.decode(marked) == "c0<eos>"
    prompt = CHARACTERS.apply_chat_template(chat[:1], add_generation_prompt=True, tokenize=False)
    assert prompt == "<bos><user>a+b=<eos><assistant>"


def test_saved_and_loaded(tmp_path: Path) -> None:
    CHARACTERS.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.encode("a+b (0)") == CHARACTERS.encode("a+b (0)")
    assert loaded.decode(loaded.encode("a+b (0)")) == "a+b (0)"
    assert (loaded.padding_side, loaded.pad_token, loaded.eos_token) == ("left", "<pad>", "<eos>")


def test_bad_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="'ab'"):
        character_tokenizer(["ab"])
    with pytest.raises(ValueError, match="'a b'"):
        word_tokenizer(["a b"])
