"""Tokenizers over characters and over words, as Transformers' fast tokenizers."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split, WhitespaceSplit
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", "<image>", "<system>", "<user>", "<assistant>")

# The generation markers let `assistant_only_loss` find what the model itself is to say.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<' + message['role'] + '>' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def _wrap(words: Iterable[str]) -> Tokenizer:
    ordered = [*SPECIAL, *sorted(set(words) - set(SPECIAL))]
    return Tokenizer(WordLevel({word: index for index, word in enumerate(ordered)}, unk_token="<unk>"))


def _finish(core: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=list(SPECIAL[4:]),
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def character_tokenizer(alphabet: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token a character.

    Args:
        alphabet: The characters; others become <unk>. Repetitions do not matter, nor does the order.

    Returns:
        A tokenizer that pads on the left; `decode` undoes `encode` on every text over the alphabet.

    Raises:
        ValueError: An entry that is not one character.
    """
    alphabet = list(alphabet)
    for character in alphabet:
        if len(character) != 1:
            raise ValueError(f"alphabet holds {character!r}: allowed are single characters")
    core = _wrap(alphabet)
    core.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = Fuse()
    return _finish(core)


def word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token a word between white space.

    Args:
        words: The vocabulary; others become <unk>.

    Returns:
        A tokenizer that pads on the left; `decode` undoes `encode` on words joined by single spaces.

    Raises:
        ValueError: A word that is empty or holds white space.
    """
    words = list(words)
    for word in words:
        if word.split() != [word]:
            raise ValueError(f"words hold {word!r}: allowed are words without white space")
    core = _wrap(words)
    core.pre_tokenizer = WhitespaceSplit()
    return _finish(core)
