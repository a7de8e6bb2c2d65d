"""Run folders of audits that nobody ran: real images, reconstructions that are the image and noise."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from gradveil.auditing.claim import CLAIM, Claim
from gradveil.auditing.notes import RunNotes
from gradveil.auditing.plan import AuditSettings
from gradveil.io.files import write_json
from gradveil.io.pictures import to_png
from gradveil.leakage import metrics
from gradveil.leakage.lineups import draw_lineups
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.randomness import generator
from gradveil.transforms import Policy
from gradveil.types import ImageSet, to_bytes, to_unit

PLAN = AuditSettings(
    "fashion-mnist-tenth",
    "convnet-16",
    ("3-1-7+43-18-18", "gaussian:0.01"),
    stages=("0", "5", "trained"),
    images=24,
    eps=(18.0, 25.0),
    trainings=3,
)
# How much of the image is in the reconstruction, per defense, and what is left of that as training goes on.
SHARES = {"none": 0.9, "random": 0.75, "3-1-7+43-18-18": 0.5, "gaussian:0.01": 0.0}
FADING = {0: 1.0, 5: 0.8}
ACCURACY = {"none": 0.86, "random": 0.8, "3-1-7+43-18-18": 0.83, "gaussian:0.01": 0.71}


def made_record(scenario: ScenarioKey, images: ImageSet, index: int, share: float) -> Record:
    """A record whose reconstruction is `share` of what was shared and noise for the rest."""
    rng = generator(index, str(scenario))
    image = images.images[index : index + 1]
    policy = scenario.defense[0].isdigit()
    shared = Policy.parse(scenario.defense)(image, seed=index) if policy else image
    truth, private = to_unit(shared), to_unit(image)
    lineups, placebos = draw_lineups(images, [index], seed=scenario.seed)
    assert lineups[0] is not None
    assert placebos[0] is not None
    mean = to_unit(images.images[images.labels == images.labels[index]]).mean(0, keepdim=True)
    guess = (share * truth + (1 - share) * torch.rand(truth.shape, generator=rng)).clamp(0, 1)
    knows = scenario.attacker != "plain"
    steps = tuple(float(step) for step in range(0, 401, 50))
    rise = 1 - np.exp(-np.arange(len(steps)) / 2)
    return Record(
        scenario=scenario,
        index=index,
        unit=(index,),
        label=images.classes[int(images.labels[index])],
        rank=lineups[0].rank(guess, None, seed=scenario.seed),
        placebo=placebos[0].rank(guess, None, seed=scenario.seed),
        psnr=round(float(metrics.psnr(guess, private)), 4),
        ssim=round(float(metrics.ssim(guess, private)), 4),
        mse=0.1,
        guess="the mean of the public images of the class",
        guess_psnr=round(float(metrics.psnr(mean, private)), 4),
        guess_ssim=round(float(metrics.ssim(mean, private)), 4),
        published_psnr=round(float(metrics.psnr(guess, truth)), 4),
        published_ssim=round(float(metrics.ssim(guess, truth)), 4),
        labels_read=1.0,
        distance=0.1,
        iterations=400,
        restarts=1,
        restarts_diverged=0,
        ended="diverged" if index % 23 == 22 and knows else "iterations",
        similarity={
            "iterations": steps,
            "shallow": tuple((rise * (0.4 + 0.5 * share)).tolist()),
            "deep": tuple((rise * (0.7 + 0.25 * share)).tolist()),
            "all": tuple((rise * (0.5 + 0.45 * share)).tolist()),
        },
        layers={f"net.{layer}.{kind}": 0.4 + 0.05 * layer for layer in range(10) for kind in ("weight", "bias")},
        knowledge={"label": "known", "defense": "known, and undone" if knows else "not used"},
        pictures={
            "original": to_png(image[0]),
            "transformed": to_png(shared[0]),
            "reconstruction": to_png(to_bytes(guess)[0]),
            **({"estimate": to_png(to_bytes(1 - guess)[0])} if knows else {}),
        },
        gradveil="0.1.0",
    )


def write_audit(folder: Path, images: ImageSet, plan: AuditSettings = PLAN, *, seed: int = 0) -> Path:
    """The folder of an audit with all of its files."""
    for scenario in plan.scenario_keys():
        fading = 0.0 if scenario.stage.unit == "epochs" else FADING[scenario.stage.count]
        share = SHARES.get(scenario.defense, 0.6) * fading * (0.8 if scenario.attacker == "plain" else 1.0)
        write_records(
            folder, [made_record(scenario, images, i, share * (0.8 + 0.2 * (i % 5) / 4)) for i in range(plan.images)]
        )
    (folder / CLAIM).write_text(Claim((plan,)).to_json())
    rng = np.random.default_rng(seed)
    accuracies = [
        {
            "defense": name,
            "seed": seed,
            "accuracy": round(ACCURACY.get(name, 0.8) + float(rng.normal(0, 0.01)), 4),
            "test_images": 1000,
        }
        for seed in range(plan.trainings)
        for name in plan.defenses
    ]
    write_json(folder / "accuracies.json", accuracies)
    properties = [
        {
            "stage": str(stage),
            "index": i,
            "loss": round(float(rng.exponential(1)), 4),
            "gradient_norm": round(float(rng.exponential(3)), 4),
        }
        for stage in plan.parse_stages()
        for i in range(plan.images)
    ]
    write_json(folder / "properties.json", properties)
    RunNotes("Audit of convnet-16", ("gradveil audit --model convnet-16",), ("Made for a test.",)).save(folder)
    return folder


def write_records(folder: Path, records: Sequence[Record]) -> None:
    (folder / "records").mkdir(parents=True, exist_ok=True)
    for record in records:
        of = "-".join(str(value) for value in asdict(record.scenario).values())
        name = f"{generator(record.index, of).initial_seed():x}"
        (folder / "records" / f"{name}.json").write_text(record.to_json())
