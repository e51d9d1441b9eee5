"""The reader of WordNet's files, on a small database in the same format and on the real one."""

import re

import numpy as np
import pytest

from paperworks.interpret.concept_lattice.wordnet import Domain, Synset, WordNet, wordnet_domain
from paperworks.kit.assets import load_wordnet, status

needs_wordnet = pytest.mark.skipif(
    status("wordnet").state == "missing", reason="not on this machine: paperworks data wordnet"
)
# Offset, words, pointers, gloss: an animal with a dog (two parents: animal and pet), a wolf, and Lassie, an instance.
ROWS = [
    ("00000010", ["animal"], [("~", "00000020"), ("~", "00000030"), ("%p", "00000060")], "a living thing that moves"),
    ("00000020", ["dog", "domestic_dog"], [("@", "00000010"), ("@", "00000050"), ("~i", "00000040")], "a tame barker"),
    ("00000030", ["wolf"], [("@", "00000010")], 'a wild barker; "a wolf in the snow"'),
    ("00000040", ["Lassie"], [("@i", "00000020")], "a famous one"),
    ("00000050", ["pet"], [("~", "00000020")], "kept for pleasure"),
    ("00000060", ["tail"], [], "what wags"),
    ("00000070", ["dog"], [("@", "00000050")], "a hot dog"),
]
INDEX = {
    "animal": ["00000010"], "dog": ["00000020", "00000070"], "domestic_dog": ["00000020"], "wolf": ["00000030"],
    "lassie": ["00000040"], "pet": ["00000050"], "tail": ["00000060"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    data = ["  1 This is the licence"]
    for offset, words, pointers, gloss in ROWS:
        parts = [offset, "05", "n", f"{len(words):02x}", *(x for word in words for x in (word, "0"))]
        # One more pointer to a verb and one between words, which are no relations of nouns.
        every = [
            *((s, to, "n", "0000") for s, to in pointers),
            ("+", "00000099", "v", "0101"),
            ("@", "00000060", "n", "0101"),
        ]
        parts += [f"{len(every):03d}", *(x for pointer in every for x in pointer)]
        data.append(f"{' '.join(parts)} | {gloss}  ")
    index = ["  1 This is the licence"]
    index += [f"{w} n {len(o)} 2 @ ~ {len(o)} 0 {' '.join(o)}  " for w, o in sorted(INDEX.items())]
    (tmp_path / "data.noun").write_text("\n".join(data) + "\n")
    (tmp_path / "index.noun").write_text("\n".join(index) + "\n")
    return tmp_path


def test_synsets_names_and_relations(folder):
    wordnet = WordNet(folder)
    assert len(wordnet) == 7
    dog = wordnet["dog.n.01"]
    assert dog.lemmas == ("dog", "domestic dog")
    assert dog.first_sense == ("dog", "domestic dog")
    assert dog.hypernyms == ("animal.n.01", "pet.n.01")
    assert wordnet["dog.n.02"].first_sense == ()
    assert wordnet["animal.n.01"].hyponyms == ("dog.n.01", "wolf.n.01")
    assert wordnet["animal.n.01"].parts == ("tail.n.01",)
    assert wordnet["wolf.n.01"].gloss == 'a wild barker; "a wolf in the snow"'
    assert wordnet.above("dog.n.01") == ("animal.n.01", "pet.n.01")
    assert wordnet.below("animal.n.01") == ("dog.n.01", "wolf.n.01")  # instances are no kinds


def test_a_domain_and_its_context(folder):
    domain = wordnet_domain("animal.n.01", folder)
    assert [s.name for s in domain.objects] == ["dog.n.01", "wolf.n.01"]
    assert domain.concepts == {"animal.n.01": {0, 1}, "dog.n.01": {0}, "wolf.n.01": {1}}
    context = domain.context(max_share=1.0)
    have = {label: context.extent([label]) for label in context.attributes}
    assert have["is:dog.n.01"] == {"dog.n.01"}
    assert have["has:tail.n.01"] == {"dog.n.01", "wolf.n.01"}  # inherited
    assert "says:barker" not in have  # holds for the same objects as has:tail.n.01
    assert domain.context(("gloss",), max_share=1.0).extent(["says:barker"]) == {"dog.n.01", "wolf.n.01"}
    words = domain.context(("gloss",), max_share=1.0, max_attributes=99).attributes
    assert "says:wild" in words
    assert "says:snow" not in words  # from an example
    assert domain.context(max_share=1.0, max_attributes=2).I.shape == (2, 2)
    with pytest.raises(ValueError, match="no attribute holds for 90% to 95% of 2 objects"):
        domain.context(min_share=0.9, max_share=0.95)


def test_groups_keep_a_head_word_on_one_side(folder):
    text = (folder / "data.noun").read_text().replace(" 01 wolf 0", " 01 wild_Dog 0")
    (folder / "data.noun").write_text(text)
    index = (folder / "index.noun").read_text().replace("wolf n", "wild_dog n")
    (folder / "index.noun").write_text(index)
    domain = wordnet_domain("animal.n.01", str(folder) + "/")  # another key of the cache
    assert domain.objects[1].first_sense == ("wild Dog",)
    assert domain.groups().tolist() == [0, 0]
    with pytest.raises(ValueError, match="lemmas=0; allowed is 1 or more"):
        domain.groups(0)


def test_groups_look_at_every_lemma_that_is_embedded():
    """The heads of second lemmas give an ancestor away as well; groups that share one are one."""

    def synset(*lemmas):
        return Synset(lemmas[0], lemmas, lemmas, "", (), (), ())

    names = [("collie", "sheep dog"), ("wolf",), ("grey Wolf", "wild dog"), ("cat",), ("puma", "cougar", "big cat")]
    domain = Domain("root", tuple(synset(*lemmas) for lemmas in names), None)
    assert domain.groups(1).tolist() == [0, 1, 1, 2, 3]
    assert domain.groups(2).tolist() == [0, 0, 0, 1, 2]
    assert domain.groups().tolist() == [0, 0, 0, 1, 1]


def test_bad_input_is_named(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    domain = wordnet_domain("animal.n.01", folder)
    for call, words in [
        (lambda: WordNet(empty), "has no index.noun; allowed is a folder with index.noun and data.noun"),
        (lambda: wordnet_domain("dragon.n.01", folder), "'dragon.n.01' is no noun synset"),
        (lambda: domain.sample(0, np.random.default_rng(0)), "count=0; allowed is 1 or more"),
        (lambda: domain.context(("colour",)), "kinds has 'colour'; allowed are 'ancestor', 'part', 'gloss'"),
        (lambda: domain.context(min_share=0.7), "min_share=0.7, max_share=0.6"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            call()


@needs_wordnet
def test_the_real_nouns():
    domain = wordnet_domain("animal.n.01", load_wordnet())
    wordnet = domain.wordnet
    assert len(wordnet) == 82_192
    assert wordnet["dog.n.01"].lemmas == ("dog", "domestic dog", "Canis familiaris")
    assert set(wordnet["dog.n.01"].hypernyms) == {"canine.n.02", "domestic animal.n.01".replace(" ", "_")}
    assert {"mammal.n.01", "animal.n.01", "entity.n.01"} <= set(wordnet.above("dog.n.01"))
    some = domain.sample(300, np.random.default_rng(0))
    assert len(some) == 300
    assert len({s.name for s in some.objects}) == 300
    context = some.context(max_attributes=30)
    share = context.I.mean(axis=0)
    assert 0.03 <= share.min() <= share.max() <= 0.6
    assert len({column.tobytes() for column in context.I.T}) == 30
    mammals = context.extent(["is:mammal.n.01"])
    assert mammals == {s.name for s in some.objects if "mammal.n.01" in wordnet.above(s.name)} | (
        {"mammal.n.01"} & {s.name for s in some.objects}
    )
