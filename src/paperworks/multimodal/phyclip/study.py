"""The experiments: products of trees (C7), and scenes of emoji (C1 to C6).

An arm of `trees` is called as ``factory()`` and returns a space, an arm of `scenes` likewise a loss: a module called as
``loss(image, text, box_image, box_text)`` with features (batch, k d), whose attribute `space` is its space.
"""

import json
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn

from paperworks.claims.study import ExperimentConfig, Outcome, Preparation, Trial, experiment, prepared
from paperworks.kit.assets import load_emoji, load_wordnet

from .encoders import SmallConvNet, TextEncoder, TwoTowers, parameter_groups, warmup_cosine
from .head import PHyCLIPHead
from .hierarchy import hierarchical_metrics, specialisation
from .losses import PHyCLIPLoss
from .scenes import Names, caption, choose_names, compose_scene, crop, draw_scenes, swap
from .spaces import Cosine, ProductEuclidean, ProductHyperbolic, ProductMixed, _Space
from .trees import embed_metric, grow_tree, tree_distances, wordnet_children

# --- products of trees ----------------------------------------------------------------------------------------------


class Trees(ExperimentConfig):
    """Sizes of the embedding of a product of trees."""

    nodes: int = Field(40, gt=1, description="nodes of each of the two trees")
    points: int = Field(400, gt=1, description="pairs of nodes that are embedded")
    steps: int = Field(3000, gt=0, description="steps of Adam")
    batch: int = Field(96, gt=1, description="points of a step")
    rates: tuple[float, ...] = Field((0.03, 0.1), description="learning rates; that with the least loss counts")
    roots: tuple[str, str] = Field(("mammal", "vehicle"), description="nouns under which the trees grow")


@lru_cache(maxsize=2)
def _children(root: str) -> dict[str, list[str]]:
    return wordnet_children(load_wordnet(), root)


@experiment(
    "trees",
    config={"smoke": Trees(nodes=8, points=24, steps=30, batch=24, rates=(0.1,)), "laptop": Trees(),
            "paper": Trees(nodes=200, points=4000, steps=10_000, batch=512)},
    arms={
        "h8": partial(ProductHyperbolic, 1, 8),
        "e8": partial(ProductEuclidean, 1, 8),
        "h4h4_l2": partial(ProductHyperbolic, 2, 4, metric="l2"),
        "e4e4_l1": partial(ProductEuclidean, 2, 4),
        "h4h4_l1": partial(ProductHyperbolic, 2, 4),
    },
)  # fmt: skip
def trees(trial: Trial[Trees]) -> Outcome:
    """Embed pairs of nodes of two WordNet trees whose distance is the sum of both; 8 numbers a point in every arm."""
    c = trial.config
    rng = trial.rng("trees")
    distances = [tree_distances(grow_tree(_children(root), c.nodes, rng)) for root in c.roots]
    chosen = rng.permutation(c.nodes**2)[: c.points]
    first, second = np.divmod(chosen, c.nodes)
    target = distances[0][np.ix_(first, first)] + distances[1][np.ix_(second, second)]
    found = []
    for i, rate in enumerate(c.rates):
        trial.progress(i, len(c.rates))
        generator = trial.generator("start")
        found.append(
            embed_metric(
                trial.build(), target, generator=generator, steps=c.steps, lr=rate, batch=min(c.batch, c.points)
            )
        )
    best = min(found, key=lambda e: e.loss)
    return Outcome({"distortion": best.mean, "worst": best.worst})


# --- scenes ----------------------------------------------------------------------------------------------------------


class Corpus(ExperimentConfig):
    """The emoji scenes, drawn once for all seeds."""

    encoders: Literal["frozen", "scratch", "raw"] = Field(
        "frozen",
        description="frozen: EfficientNet-Lite0 and MiniLM; scratch: small ones are trained; raw: coarse pixels and "
        "counts of words, for a quick run",
    )
    kinds: tuple[str, ...] = Field(
        ("Animals & Nature", "Food & Drink", "Travel & Places", "Activities", "Objects"), description="categories"
    )
    each: int = Field(80, gt=1, description="names of a category")
    scenes: int = Field(1500, gt=1, description="scenes")
    objects: int = Field(2, gt=1, description="emoji in a scene, each of another category")


class Scenes(Corpus):
    """Sizes of the training; the corpus belongs to it."""

    held_out: int = Field(300, gt=0, description="scenes held out, whose sets of names occur in no other scene")
    batch: int = Field(128, gt=1, description="scenes in a batch")
    steps: int = Field(800, gt=0, description="steps of AdamW")
    lr: float = Field(1e-2, gt=0, description="its peak rate; a tenth of the steps is warm-up, then half a cosine")
    decay: float = Field(0.2, ge=0, description="weight decay of projections")


CORPORA = {
    "smoke": Corpus(encoders="raw", each=4, scenes=40),
    "laptop": Corpus(),
    "paper": Corpus(encoders="scratch", scenes=20_000, objects=3),
}


@prepared("corpus", config=CORPORA)
def corpus(p: Preparation) -> None:
    """Draw names, scenes and negatives, and encode pictures and texts."""
    c: Corpus = p.config
    rng = p.rng("scenes")
    drawn = {vendor: load_emoji(vendor) for vendor in ("twitter", "google")}
    table = drawn["twitter"]
    chosen = choose_names(table.names, table.subcategories, table.categories, c.kinds, c.each, rng)
    scenes = draw_scenes(chosen, c.scenes, c.objects, rng)
    hard, easy = swap(chosen, scenes, rng, False), swap(chosen, scenes, rng, True)
    pictures = {v: [crop(drawn[v].images[row]) for row in chosen.rows] for v in drawn}
    whole = [compose_scene([table.images[chosen.rows[i]] for i in scene], rng) for scene in scenes]
    texts = {name: [caption(chosen.names[row]) for row in rows] for name, rows in
             (("captions", scenes), ("hard", hard), ("easy", easy))}  # fmt: skip
    phrases = chosen.phrases()
    texts["phrases"] = [text for three in phrases for text in three]
    pixels = {
        "scenes": np.stack(whole),
        "twitter": np.stack(pictures["twitter"]),
        "google": np.stack(pictures["google"]),
    }
    encoded: dict[str, Any] = {}
    for name, images in pixels.items():
        encoded[f"image_{name}"] = _pictures(images, c.encoders)
    vocabulary = sorted({word for rows in texts.values() for text in rows for word in text.split()})
    for name, rows in texts.items():
        encoded[f"text_{name}"] = _texts(rows, c.encoders, vocabulary)
    np.savez(p.folder / "corpus.npz", rows=chosen.rows, members=scenes, vocabulary=len(vocabulary) + 2, **encoded)
    names = {"names": chosen.names, "subcategories": chosen.subcategories, "categories": chosen.categories}
    (p.folder / "names.json").write_text(json.dumps({k: v.tolist() for k, v in names.items()}))


def _pictures(images: npt.NDArray[np.uint8], encoders: str) -> npt.NDArray[np.float32]:
    if encoders == "scratch":
        return (images.astype(np.float32) / 127.5 - 1).transpose(0, 3, 1, 2)
    if encoders == "raw":  # 12 x 12 means of each half
        n, height, width, _ = images.shape
        coarse = images.reshape(n, 12, height // 12, -1, width // (12 * (width // height)), 3).mean((2, 4))
        return np.asarray(coarse.reshape(n, 12, -1, 12, 3).mean(2).reshape(n, -1), dtype=np.float32)
    from paperworks.kit.nets import image_features

    return image_features(images, size=0)


def _texts(texts: list[str], encoders: str, vocabulary: list[str]) -> npt.NDArray[Any]:
    if encoders == "scratch":  # 0 fills up; the largest id ends a text
        ids = {word: i + 1 for i, word in enumerate(vocabulary)}
        rows = [[*(ids[word] for word in text.split()), len(ids) + 1] for text in texts]
        return np.array([row + [0] * (40 - len(row)) for row in rows])
    if encoders == "raw":
        return np.array([[text.split().count(word) for word in vocabulary] for text in texts], dtype=np.float32)
    from paperworks.kit import lm

    return lm.encode(texts)


class _Data:
    """The corpus, split for one seed."""

    def __init__(self, folder: Path, c: Scenes, rng: np.random.Generator) -> None:
        with np.load(folder / "corpus.npz") as arrays:
            a = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        names = json.loads((folder / "names.json").read_text())
        self.names = Names(**{name: np.array(words) for name, words in names.items()}, rows=a["rows"].numpy())
        self.vocabulary, self.members = int(a["vocabulary"]), a["members"]
        order = torch.from_numpy(rng.permutation(len(self.members)))
        self.held_out, self.train = order[: c.held_out], order[c.held_out :]
        self.image = {k[6:]: v for k, v in a.items() if k.startswith("image_")}
        self.text = {k[5:]: v for k, v in a.items() if k.startswith("text_")}
        self.text["phrases"] = self.text["phrases"].unflatten(0, (-1, 3))
        if c.encoders != "scratch":  # centred, of mean square 1, by what is trained on; projections have no bias
            self._standardise(self.image, self.image["scenes"][self.train], self.image["twitter"])
            self._standardise(self.text, self.text["captions"][self.train], self.text["phrases"].flatten(0, 1))

    @staticmethod
    def _standardise(features: dict[str, Tensor], *seen: Tensor) -> None:
        whole = torch.cat(seen)
        mean = whole.mean(0)
        size = (whole - mean).square().mean().sqrt()
        for name, value in features.items():
            features[name] = (value - mean) / size


def _model(c: Scenes, space: _Space, data: _Data) -> PHyCLIPHead:
    if c.encoders != "scratch":
        widths = data.image["scenes"].shape[-1], data.text["captions"].shape[-1]
        return PHyCLIPHead(TwoTowers(nn.Identity(), nn.Identity()), space, *widths, freeze=True)
    small = TwoTowers(SmallConvNet(64), TextEncoder(data.vocabulary, 64, 2, 4, 40))
    return PHyCLIPHead(small, space, 64, 64)


class Untrained(PHyCLIPLoss):
    """The loss without its gradients: what can be seen without anything learnt."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """0, whatever the features."""
        return 0 * super().forward(*args, **kwargs)


ARMS = {
    "untrained": lambda: Untrained(ProductHyperbolic(8, 8)),
    "clip": lambda: PHyCLIPLoss(Cosine(64), entail_weight=0),
    "meru": lambda: PHyCLIPLoss(ProductHyperbolic(1, 64), boxes=False, eta_inter=1.0),
    "hycoclip": lambda: PHyCLIPLoss(ProductHyperbolic(1, 64)),
    "l1_k8": lambda: PHyCLIPLoss(ProductHyperbolic(8, 8)),
    "l1_k16": lambda: PHyCLIPLoss(ProductHyperbolic(16, 4)),
    "l2_k8": lambda: PHyCLIPLoss(ProductHyperbolic(8, 8, metric="l2")),
    "linf_k8": lambda: PHyCLIPLoss(ProductHyperbolic(8, 8, metric="linf")),
    "mixed_k8": lambda: PHyCLIPLoss(ProductMixed(8, 8)),
    "euclid_l1_k8": lambda: PHyCLIPLoss(ProductEuclidean(8, 8)),
}


@experiment(
    "scenes",
    config={
        "smoke": Scenes(**CORPORA["smoke"].model_dump(), held_out=16, batch=24, steps=30),
        "laptop": Scenes(**CORPORA["laptop"].model_dump()),
        "paper": Scenes(**CORPORA["paper"].model_dump(), held_out=1000, batch=768, steps=20_000, lr=5e-4),
    },
    arms=ARMS,
    prepared=("corpus",),
)
def scenes(trial: Trial[Scenes]) -> Outcome:
    """Train on scenes and their boxes, and look at held-out sets of names and the other vendor's drawings."""
    c = trial.config
    data = _Data(trial.prepared("corpus"), c, trial.rng("split"))
    loss = trial.build()
    with trial.seeded("init"):
        head = _model(c, loss.space, data)
    rng = trial.rng("batches")
    optimiser = torch.optim.AdamW(parameter_groups(nn.ModuleList([head, loss]), c.decay), lr=c.lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, partial(warmup_cosine, warmup=max(1, c.steps // 10), total=c.steps)
    )
    for step in range(c.steps):
        rows = data.train[torch.from_numpy(rng.permutation(len(data.train))[: c.batch])]
        place = torch.from_numpy(rng.integers(data.members.shape[1], size=len(rows)))
        boxes = data.members[rows, place]
        heights = torch.from_numpy(rng.integers(3, size=len(rows)))
        value = loss(
            head.encode_image(data.image["scenes"][rows]),
            head.encode_text(data.text["captions"][rows]),
            head.encode_image(data.image["twitter"][boxes]),
            head.encode_text(data.text["phrases"][boxes, heights]),
        )
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        if step % max(1, c.steps // 40) == 0:
            trial.curve("loss", step, value.item())
            trial.progress(step, c.steps)
    head.eval()
    with torch.no_grad():
        return Outcome(_measure(head, loss.space, data, trial.rng("permutations")))


def _measure(head: PHyCLIPHead, space: _Space, data: _Data, rng: np.random.Generator) -> dict[str, float]:
    def text(features: Tensor) -> Tensor:
        return space.lift(head.encode_text(features), "text")

    def image(features: Tensor) -> Tensor:
        return space.lift(head.encode_image(features), "image")

    classes, other = text(data.text["phrases"][:, 0]), image(data.image["google"])
    guess = space.similarity(other, classes).argmax(1)
    inner = space.score(other, classes, "inner").argmax(1) if isinstance(space, ProductHyperbolic) else guess
    own = torch.arange(len(classes))
    nodes = [("name", n) for n in data.names.names.tolist()]
    errors = hierarchical_metrics([nodes[i] for i in guess.tolist()], nodes, data.names.tree())

    held = data.held_out
    pictures, right = image(data.image["scenes"][held]), text(data.text["captions"][held])
    similar = space.similarity(pictures, right)
    diagonal = torch.arange(len(held))

    def beats(wrong: str) -> float:
        worse = space.similarity(pictures, text(data.text[wrong][held])).diagonal()
        return (similar.diagonal() > worse).float().mean().item()

    members = data.members[held]
    both = classes[members[:, 0]]
    for place in range(1, members.shape[1]):
        both = space.compose(both, classes[members[:, place]])
    top = max(1, min(10, len(held) // 4))
    near = [space.similarity(q, pictures).topk(top, dim=1).indices for q in (right, both)]
    overlap = (near[0].unsqueeze(2) == near[1].unsqueeze(1)).any(2).float().mean().item()
    return {
        "names": (guess == own).float().mean().item(),
        "names_inner": (inner == own).float().mean().item(),
        "tie": errors["tie"],
        "jaccard": errors["jaccard"],
        "hard": beats("hard"),
        "easy": beats("easy"),
        "to_text": (similar.argmax(1) == diagonal).float().mean().item(),
        "to_image": (similar.argmax(0) == diagonal).float().mean().item(),
        "specialisation": specialisation(space, other, data.names.categories.tolist(), rng),
        "composition": overlap,
    }
