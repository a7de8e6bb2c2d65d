"""Defenses that are made of others: train-only, and random policies."""

import pytest
import torch
from torch import nn

from gradveil.attacks import Evidence, parse_attack
from gradveil.attacks.draws import SimulatePolicy
from gradveil.client import share
from gradveil.defenses import (
    Augment,
    Chain,
    DpSgd,
    GaussianNoise,
    Precode,
    Prune,
    Random,
    TrainOnly,
    as_attacked,
    parse_defense,
    with_expected_batch,
)
from gradveil.defenses.words import defense_in_words
from gradveil.errors import GradveilError
from gradveil.transforms import LIBRARY, Policy
from gradveil.transforms.sampling import random_policies
from gradveil.types import Batch, Dataset, Gradients, to_unit


def batch_of(fashion: Dataset, images: int) -> Batch:
    return Batch(to_unit(fashion.test.images[:images]), fashion.test.labels[:images])


def same(one: Gradients, other: Gradients) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("inner", ["prune:0.7", "gaussian:0.01", "clip:0.001", "soteria", "dp-sgd:batch_norm=group"])
def test_training_sees_the_defense_and_the_attack_does_not(fashion: Dataset, small_net: nn.Module, inner: str) -> None:
    batch, defense = batch_of(fashion, 2), parse_defense(f"train-only:{inner}")
    network = defense.network(small_net, seed=3)
    trained = defense.share(share, network, batch, seed=3)
    assert same(trained, parse_defense(inner).share(share, network, batch, seed=3))
    attacked = as_attacked(defense).share(share, network, batch, seed=3)
    assert same(attacked, share(network, batch))
    assert not same(attacked, trained)
    # Whoever knows the defense knows that there is none to answer.
    evidence = Evidence(network, attacked, (1, 28, 28), 2, batch.labels)
    attack = parse_attack("fast", iterations=1)
    known = defense.known_by("adaptive", seed=3, indices=torch.arange(2))
    assert known.adapt(attack, evidence) is attack
    assert defense.adapt(attack, evidence) is attack
    assert known.knowledge == "the attacked gradient is not defended"


def test_images_and_network_stay_defended_and_answered(fashion: Dataset, small_net: nn.Module) -> None:
    images, indices = fashion.test.images[:4], torch.arange(4)
    policy = parse_defense("train-only:3-1-7")
    expected = Augment(Policy.parse("3-1-7")).images(images, seed=2, indices=indices)
    assert torch.equal(policy.images(images, seed=2, indices=indices), expected)
    assert torch.equal(as_attacked(policy).images(images, seed=2, indices=indices), expected)
    precode = TrainOnly(Precode(k=4))
    network = as_attacked(precode).network(small_net, seed=0)
    assert repr(network) == repr(Precode(k=4).network(small_net, seed=0))
    batch = batch_of(fashion, 2)
    evidence = Evidence(network, share(network, batch), (1, 28, 28), 2, batch.labels)
    attack = parse_attack("fast", iterations=1)
    assert precode.adapt(attack, evidence) == Precode(k=4).adapt(attack, evidence) != attack
    simulated = policy.known_by("simulate", seed=0, indices=indices).adapt(attack, evidence)
    assert simulated.simulate == SimulatePolicy(Policy.parse("3-1-7"))


def test_inside_a_chain(fashion: Dataset, small_net: nn.Module) -> None:
    batch, chain = batch_of(fashion, 2), parse_defense("gaussian:0.1 | train-only:gaussian:0.2 | prune:0.5")
    plain = share(small_net, batch)
    attacked = as_attacked(chain).share(share, small_net, batch, seed=1)
    assert same(attacked, parse_defense("gaussian:0.1 | prune:0.5").gradients(plain, seed=1))
    # The second noise is not the first one again, train-only or not.
    trained = chain.share(share, small_net, batch, seed=1)
    assert same(trained, Chain((GaussianNoise(0.1), GaussianNoise(0.2), Prune(0.5))).gradients(plain, seed=1))


@pytest.mark.parametrize("inner", [Chain((Prune(0.5), Prune(0.7))), TrainOnly(Prune(0.5)), parse_defense("none")])
def test_train_only_takes_one_defense(inner: Chain | TrainOnly) -> None:
    with pytest.raises(GradveilError, match="goes before one defense"):
        TrainOnly(inner)


def test_expected_batches_reach_the_inner_defense() -> None:
    assert with_expected_batch(TrainOnly(DpSgd()), 7) == TrainOnly(DpSgd(expected=7))


# --- random policies


@pytest.mark.parametrize(("k", "draw"), [(1, 0), (10, 0), (10, 3)])
def test_random_policies_are_those_of_the_search(k: int, draw: int) -> None:
    policy = Random(k, draw).policy
    assert [Policy((member,)) for member in policy] == random_policies(draw, k, channels=3)
    assert len({Policy((member,)).canonical(3) for member in policy}) == k
    assert all(1 <= len(member) <= 3 and set(member) <= set(LIBRARY) for member in policy)


def test_random_is_the_hybrid_it_draws(fashion: Dataset) -> None:
    images, indices = fashion.test.images[:50], torch.arange(50)
    defense = Random(5, 2)
    hybrid = Augment(defense.policy)
    found = defense.images(images, seed=4, indices=indices)
    assert torch.equal(found, hybrid.images(images, seed=4, indices=indices))
    assert not torch.equal(found, Random(5, 3).images(images, seed=4, indices=indices))
    # Every one of the policies gets its share of the images.
    alone = [Policy((member,))(images, seed=4, indices=indices) for member in hybrid.policy]
    used = [bool((found == one).flatten(1).all(1).any()) for one in alone]
    assert all(used)
    for attacker in ("adaptive", "draw", "simulate"):
        assert defense.known_by(attacker, seed=4, indices=indices) == hybrid.known_by(attacker, seed=4, indices=indices)
    assert defense.knowledge == hybrid.knowledge


def test_random_and_a_policy_in_a_chain_draw_apart(fashion: Dataset) -> None:
    images, indices = fashion.test.images[:20], torch.arange(20)
    members = Random(1, 0), Augment(Policy.parse("3-1-7"))
    expected = Chain((Augment(members[0].policy), members[1]))
    found = Chain(members).images(images, seed=0, indices=indices)
    assert torch.equal(found, expected.images(images, seed=0, indices=indices))


def test_train_only_again_and_again_is_one_line() -> None:
    nested = 5000 * "train-only:" + "prune:0.7"
    with pytest.raises(GradveilError, match="expected one defense behind train-only"):
        parse_defense(nested)
    assert defense_in_words(nested) == nested  # what cannot be read stays as it is
