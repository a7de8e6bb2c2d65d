"""Search for policies that score well on privacy without scoring badly on accuracy (Gao et al., 2021), and say how sure it is."""

from gradveil.searching.plan import SearchPlan
from gradveil.searching.published import PublishedPlan
from gradveil.searching.race import RaceRound
from gradveil.searching.result import Candidate, Control, SearchResult, disjoint_hybrid
from gradveil.searching.running import search
from gradveil.searching.sampling import SAMPLERS

__all__ = [
    "SAMPLERS",
    "Candidate",
    "Control",
    "PublishedPlan",
    "RaceRound",
    "SearchPlan",
    "SearchResult",
    "disjoint_hybrid",
    "search",
]
