"""The lines that put an answer to use: a command, and Python for Lightning and Flower."""

import shlex

from gradveil.client import format_client
from gradveil.defenses import Defense
from gradveil.defenses.parts import acts, needs_poisson
from gradveil.leakage.threat import Clients, Threat
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.plan import RecommendPlan

# What `gradveil federate` takes where nothing else is said.
PARTICIPANTS, RATE = 10, 0.1


def apply_lines(candidate: Candidate, plan: RecommendPlan, dataset: str) -> tuple[str, ...]:
    """The command that trains as it was attacked, and the lines that bring a defense into a script of one's own."""
    clients, defense = candidate.threat.clients, candidate.defense
    words = ["gradveil", "federate", "--model", plan.model, "--dataset", dataset, *_training(candidate.threat)]
    lines: list[str] = []
    if clients.summed > 1:
        lines.append(
            f"# secure aggregation over {clients.summed} participants or more: the server must see nothing but their mean"
        )
        words += _sums(candidate, plan)
    if not candidate.is_deployment:
        words += ["--defense", candidate.name]
    lines.append(shlex.join(words))
    if candidate.is_deployment:
        return tuple(lines)
    return (*lines, *_lightning(defense, clients), *_flower(defense, candidate.threat))


def _training(threat: Threat) -> list[str]:
    """How participants train, as options of `gradveil federate`."""
    clients = threat.clients
    # Where rounds were rehearsed, with nothing but their rate.
    rate = ["--lr", f"{clients.rate:g}", "--momentum", "0", "--weight-decay", "0"] if threat.rounds else []
    local = ["--client", format_client(clients.client)] if clients.epochs else []
    many = [] if clients.participants is None else ["--participants", str(clients.participants)]
    return ["--batch", str(clients.images), *many, *local, *rate, *([] if clients.augment else ["--plain-images"])]


def _sums(candidate: Candidate, plan: RecommendPlan) -> list[str]:
    """Who is summed; a curious server then sees only that. It does not attack sums of batches that differ in size."""
    summed = candidate.threat.clients.summed
    more = (
        ["--participants", str(summed)]
        if candidate.threat.clients.participants is None and summed > PARTICIPANTS
        else []
    )
    if needs_poisson(candidate.defense):
        return more
    return [*more, "--curious", plan.attacks[0].partition(":")[0], "--sums", str(summed)]


def _lightning(defense: Defense, clients: Clients) -> list[str]:
    """A callback for what acts on networks and gradients, a data module for what acts on images or draws them."""
    text = f'"{defense}"'
    called = any(acts(defense, hook) for hook in ("network", "client", "gradients"))
    wrapped = acts(defense, "images") or needs_poisson(defense)
    names = [name for name, used in (("DefendedData", wrapped), ("DefenseCallback", called)) if used]
    images = clients.batch if clients.epochs else clients.images
    return [
        f"# Lightning, with batch_size={images} in your data module",
        "import lightning as L",
        f"from gradveil.lightning import {', '.join(names)}",
        f"trainer = L.Trainer({f'callbacks=[DefenseCallback({text})]' if called else ''})",
        f"trainer.fit(module, datamodule={f'DefendedData(datamodule, {text})' if wrapped else 'datamodule'})",
    ]


def _flower(defense: Defense, threat: Threat) -> list[str]:
    """A mod, for a defense that acts on what is shared and on nothing else."""
    if any(acts(defense, hook) for hook in ("images", "network", "client")):
        return []
    rate = threat.clients.rate if threat.clients.epochs or threat.rounds else RATE
    return [
        "# Flower, with lr as in the training of your app",
        "from flwr.clientapp import ClientApp",
        "from gradveil.federated.flower.mod import defense_mod",
        f'app = ClientApp(mods=[defense_mod("{defense}", lr={rate:g})])',
    ]
