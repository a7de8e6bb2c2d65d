"""Search for policies that score well on privacy without scoring badly on accuracy (Gao et al., 2021), and say how sure it is."""

from gradveil.search.plan import SearchPlan
from gradveil.search.race import RaceRound
from gradveil.search.result import Candidate, SearchResult, disjoint_hybrid
from gradveil.search.running import search
from gradveil.search.sampling import SAMPLERS

__all__ = [
    "SAMPLERS",
    "Candidate",
    "RaceRound",
    "SearchPlan",
    "SearchResult",
    "disjoint_hybrid",
    "search",
]
