"""`embed_terms` on a small causal model with random weights, made here, and on SmolLM2 where it is at hand."""

import re

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from paperworks.interpret.concept_lattice.embedding import embed_terms, unembedding_frame
from paperworks.kit.assets import status


class Letters:
    """A tokenizer: one token a letter."""

    def __call__(self, texts, padding=False):
        return {"input_ids": [[1 + ord(letter) % 30 for letter in text] for text in texts]}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return LlamaForCausalLM(config).train()


def alone(model, text, layer):
    """Hidden states (tokens, width) of one text, without batch or padding."""
    ids = torch.tensor(Letters()([text])["input_ids"])
    with torch.no_grad():
        return model(ids, output_hidden_states=True).hidden_states[layer][0].double().numpy()


TERMS = ["dog", "sea_lion", "a", "very long word indeed"]


@pytest.mark.parametrize("layer", [-1, 0, 1])
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_vector_is_that_of_the_text_alone(model, layer, pooling):
    found = embed_terms(model, Letters(), TERMS, layer, pooling, "the {term}", whiten=False, batch_size=3)
    for term, vector in zip(TERMS, found, strict=True):
        states = alone(model, f"the {term}".replace("_", " "), layer)
        expected = states[-1] if pooling == "last" else states.mean(axis=0)
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert model.training  # left as it was


def test_synonyms_are_averaged_and_whitening_is_that_of_the_unembedding(model):
    a, b, both = embed_terms(model, Letters(), ["dog", "hound", ("dog", "hound")], whiten=False)
    np.testing.assert_allclose(both, (a + b) / 2, atol=1e-7)
    gamma = model.lm_head.weight.detach().double().numpy()
    values, vectors = np.linalg.eigh(np.cov(gamma.T, bias=True))
    root = (vectors / np.sqrt(values)) @ vectors.T
    white = embed_terms(model, Letters(), ["dog"])[0]
    np.testing.assert_allclose(white, (a - gamma.mean(axis=0)) @ root, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(white, unembedding_frame(model).transform(a[None])[0])
    assert embed_terms(model, Letters(), [], whiten=False).shape[0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"terms": "dog"}, "terms='dog' is one text"),
        ({"terms": ["dog", ()]}, "terms[1] has no synonyms"),
        ({"terms": [""]}, "the text '' has no tokens"),
        ({"layer": 3}, "layer=3; allowed is -3 to 2"),
        ({"pooling": "max"}, "pooling='max'; allowed are 'last', 'mean'"),
        ({"template": "a word"}, "template='a word'; allowed is a text with '{term}' in it"),
        ({"batch_size": 0}, "batch_size=0; allowed is 1 or more"),
    ],
)
def test_bad_input_is_named(model, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        embed_terms(model, Letters(), **{"terms": ["dog"], **options})


def test_a_model_without_unembedding_says_so(model):
    with pytest.raises(ValueError, match="LlamaModel has no unembedding matrix; set whiten=False"):
        embed_terms(LlamaModel(model.config), Letters(), ["dog"])


ANIMALS = "dog cat horse cow pig sheep goat lion tiger bear wolf fox rabbit mouse eagle owl frog snake"
DISHES = "soup bread cheese pizza cake salad stew pie rice pasta butter sauce omelette curry jam toast"


@pytest.mark.slow
@pytest.mark.skipif(status("smollm2").state == "missing", reason="not on this machine: paperworks data smollm2")
def test_on_smollm2_kinds_of_things_lie_apart():
    """The method end to end on a real language model: fit on some nouns, tell others apart."""
    from paperworks.interpret.concept_lattice import AttributeDirections
    from paperworks.kit.lm import embed_lm, load_smollm2

    model, tokenizer = load_smollm2()
    animals, dishes = ANIMALS.split(), DISHES.split()
    terms, y = [*animals, *dishes], np.array([1] * len(animals) + [0] * len(dishes))
    V = embed_terms(model, tokenizer, terms, template="the {term}")
    raw = embed_terms(model, tokenizer, terms, template="the {term}", whiten=False)
    np.testing.assert_allclose(raw, embed_lm(model, tokenizer, [f"the {t}" for t in terms]), atol=1e-3)
    train = np.arange(len(terms)) % 2 == 0
    assert (AttributeDirections().fit(V[train], y[train]).predict(V[~train]) == y[~train]).mean() > 0.8
