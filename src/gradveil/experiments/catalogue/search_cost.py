"""What a search costs (Section 5 of both papers)."""

from gradveil.experiments.catalogue.common import CIFAR, ONE_EPOCH, SEMI_TRAINED, SHORT, TINY
from gradveil.experiments.experiment import Claim, Experiment
from gradveil.experiments.score_rules import cheaper_than_attack
from gradveil.experiments.searches import SearchCost

SEARCH_COST = Experiment(
    name="search-cost",
    title="What a search for policies costs",
    published="Search cost, Section 5 (Gao et al., 2021): 2.5 h on a V100, ten jobs in parallel; Drabent et al. (2022): 10 h",
    paper=(
        SearchCost("cifar100[:10%]", "resnet20-4", recipe=SEMI_TRAINED, published=True),
        SearchCost("cifar100[:10%]", "resnet20-4", recipe=SEMI_TRAINED),
    ),
    cpu=(SearchCost(CIFAR, "convnet-8", policies=300, recipe=SHORT),),
    smoke=(SearchCost(TINY, "convnet-2", policies=4, timed=1, images=4, recipe=ONE_EPOCH),),
    claims=(
        Claim(
            "search cost",
            "gao2021",
            "The search overhead is low: 1,500 policies take a quarter of the time that attacks on 100 images take.",
            cheaper_than_attack(),
        ),
    ),
    differs="Ours races 300 policies instead of scoring 1,500 in full; convnet-8 on a tenth of CIFAR-10.",
)
