"""`paperworks new` writes a paper's room, `paperworks eject` takes a method out of its room."""

from paperworks.claims.scaffold.eject import Ejected, eject
from paperworks.claims.scaffold.new import Written, new

__all__ = ["Ejected", "Written", "eject", "new"]
