from .context import FormalContext as FormalContext
from .directions import AttributeDirections as AttributeDirections
from .directions import canonical_shift as canonical_shift
from .drawing import draw_lattice as draw_lattice
from .embedding import embed_terms as embed_terms
from .implications import Implication as Implication
from .implications import confidence as confidence
from .implications import consequences as consequences
from .implications import duquenne_guigues as duquenne_guigues
from .lattice import ConceptLattice as ConceptLattice
from .lattice import FormalConcept as FormalConcept
from .lattice import TooManyConcepts as TooManyConcepts
from .profiles import ConceptProfile as ConceptProfile
from .profiles import HalfSpaceSpace as HalfSpaceSpace
from .profiles import Region as Region
from .profiles import join as join
from .profiles import meet as meet
from .profiles import soft_equivalence as soft_equivalence
from .profiles import soft_inclusion as soft_inclusion
from .whitening import CausalWhitening as CausalWhitening
from .wordnet import Domain as Domain
from .wordnet import WordNet as WordNet
from .wordnet import wordnet_domain as wordnet_domain

__all__ = [
    "AttributeDirections",
    "CausalWhitening",
    "ConceptLattice",
    "ConceptProfile",
    "Domain",
    "FormalConcept",
    "FormalContext",
    "HalfSpaceSpace",
    "Implication",
    "Region",
    "TooManyConcepts",
    "WordNet",
    "canonical_shift",
    "confidence",
    "consequences",
    "draw_lattice",
    "duquenne_guigues",
    "embed_terms",
    "join",
    "meet",
    "soft_equivalence",
    "soft_inclusion",
    "wordnet_domain",
]
