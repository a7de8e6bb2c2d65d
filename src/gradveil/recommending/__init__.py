"""What to do about a leak: a race of defenses and deployments over privacy and accuracy, and its answers in words.

`recommend(plan, dataset, folder)` races the candidates of a plan and gives a `Recommendation`; what it knows is in
`recommend.json` of the folder, where it goes on.
"""

from gradveil.recommending.candidates import Candidate, default_candidates, parse_candidate
from gradveil.recommending.front import pareto_front
from gradveil.recommending.plan import RecommendPlan
from gradveil.recommending.race import recommend
from gradveil.recommending.recommendation import Recommendation

__all__ = [
    "Candidate",
    "RecommendPlan",
    "Recommendation",
    "default_candidates",
    "pareto_front",
    "parse_candidate",
    "recommend",
]
