"""What "leaks" means, measured: the table of docs/leakage.md (`python -m bench.leakage`).

Attacks on 32 images per row, each ranked among others of its class, beside the figure that papers and the first version went
by. Then the measure itself: images that were not attacked, and gradients drowned in noise, must come out at 50%. Takes about an
hour on two cores, goes on where it was killed, leaves `runs/leakage.json` and the pictures of docs/leakage.md.
"""

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from scipy import stats
from torch import Tensor

from bench.leaks import DATASET, FOLDER, attack_network, attack_untrained, figures
from gradveil.datasets import load
from gradveil.io.files import write_json, writing
from gradveil.io.pictures import from_png
from gradveil.leakage import metrics
from gradveil.leakage.identification import identify, identify_placebos
from gradveil.leakage.records import ESTIMATE, Record
from gradveil.leakage.scenario import ScenarioKey
from gradveil.progress import bar
from gradveil.randomness import generator
from gradveil.statistics import rank_sum_p
from gradveil.training import Recipe, train
from gradveil.training.networks import load_model
from gradveil.training.stage import Stage
from gradveil.types import Dataset, to_unit

RESULT, PICTURES = Path("runs/leakage.json"), Path("runs/leakage.png")
# Not the first ones: on those the attacker's answers were chosen.
IMAGES = range(20, 52)
# (model, attack, iterations), defense, attacker
FAST, IDLG = ("convnet-16", "fast", 100), ("lenet", "idlg", 100)
CASES = (
    (FAST, "none", "plain"),
    (FAST, "random:k=10", "plain"),
    (FAST, "random:k=10", "adaptive"),
    (FAST, "43-18-18", "plain"),
    (FAST, "43-18-18", "adaptive"),
    (FAST, "7-4-15", "plain"),
    (FAST, "7-4-15", "adaptive"),
    (FAST, "3-1-7", "plain"),
    (FAST, "3-1-7", "adaptive"),
    (FAST, "21-13-3", "plain"),
    (FAST, "21-13-3", "adaptive"),
    (FAST, "gaussian:1000", "plain"),
    (IDLG, "none", "plain"),
    (IDLG, "random:k=10", "plain"),
    (IDLG, "gaussian:0.1", "plain"),
    (IDLG, "prune:0.99", "adaptive"),
    (IDLG, "precode:k=12,at=net.features.0", "adaptive"),
)
TRAINED, EPOCHS = "resnet20", 3
# So that attacks which get nothing are cheap: what is rebuilt from noise is noise after any number of steps.
NOISE, NOISE_STEPS, NOISE_IMAGES = "gaussian:1000", 5, range(240)
# Shown in pictures: one image of each.
SHOWN = (0, 5, 12, 17)


def run(workers: int = 1) -> dict[str, object]:
    """Attack what is missing below `FOLDER`, write `RESULT` and the pictures."""
    dataset = load(DATASET)
    rows, shown = [], []
    for (model, attack, iterations), defense, attacker in CASES:
        records = attack_untrained(model, defense, attacker, attack, iterations, IMAGES, workers=workers)
        rows.append(_row(records))
        shown.append((f"{model}\n{defense.partition(',')[0]}\n{attacker} attacker", records))
    rows.append(_row(_trained(dataset, workers)))
    summary: dict[str, object] = {
        "dataset": DATASET,
        "images": list(IMAGES),
        "rows": rows,
        "no_gradient": no_gradient(dataset),
        "calibration": calibration(workers),
    }
    write_json(RESULT, summary)
    draw(shown, PICTURES)
    return summary


def _row(records: Sequence[Record]) -> dict[str, object]:
    of = records[0].scenario
    setting = {"model": of.model, "stage": str(of.stage), "attack": of.attack, "iterations": of.iterations}
    old = [_over_one_colour(record) for record in records]
    return {
        **setting,
        "defense": of.defense,
        "attacker": of.attacker,
        **figures(records),
        "over_one_colour": statistics.fmean(old),
        "over_one_colour_sd": statistics.stdev(old),
    }


def _over_one_colour(record: Record) -> float:
    """The figure of the first version, to the private image: PSNR of what was rebuilt over the best picture of one colour."""
    private, rebuilt = _pixels(record, "original"), _pixels(record, "reconstruction")
    flat = private.mean((2, 3), keepdim=True).expand_as(private)
    return float(metrics.psnr(rebuilt, private) - metrics.psnr(flat, private))


def _pixels(record: Record, name: str) -> Tensor:
    return torch.from_numpy(np.array(from_png(record.pictures[name]).convert("L")))[None, None] / 255


def _trained(dataset: Dataset, workers: int) -> list[Record]:
    """The attack on a network that was trained for a while."""
    done = train(dataset, TRAINED, FOLDER / "trained", recipe=Recipe(epochs=EPOCHS), progress=bar)
    scenario = ScenarioKey(DATASET, TRAINED, Stage("epochs", EPOCHS), "none", "fast", 100, 0)
    return attack_network(scenario, load_model(done.weights)[0], dataset, IMAGES, workers=workers)


def no_gradient(dataset: Dataset) -> dict[str, object]:
    """What class means get that have never seen a gradient: over one colour, and among eight images of eight classes."""
    test, train = dataset.test, dataset.train
    means = torch.stack([to_unit(train.images[train.labels == label]).mean(0) for label in range(len(test.classes))])
    private = to_unit(test.images)
    flat = private.mean((2, 3), keepdim=True).expand_as(private)
    over = (metrics.psnr(means[test.labels], private) - metrics.psnr(flat, private)).tolist()
    picked = []
    for trial in range(200):
        chance = generator(trial, "eight classes")
        classes = torch.randperm(len(test.classes), generator=chance)[:8]
        members = [(test.labels == label).nonzero().flatten() for label in classes]
        chosen = torch.stack([one[torch.randint(len(one), (), generator=chance)] for one in members])
        alike = np.corrcoef(means[classes].flatten(1).numpy(), private[chosen].flatten(1).numpy())[:8, 8:]
        picked.append(int((alike.argmax(1) == np.arange(8)).sum()))
    return {
        "over_one_colour": statistics.fmean(over),
        "over_one_colour_sd": statistics.stdev(over),
        "images": len(over),
        "picked_of_eight": statistics.fmean(picked),
        "picked_sd": statistics.stdev(picked),
        "trials": len(picked),
    }


def calibration(workers: int) -> dict[str, object]:
    """What comes out where nothing can: pure noise and placebos, and p-values of groups of ten."""
    records = attack_untrained("convnet-16", NOISE, "plain", "fast", NOISE_STEPS, NOISE_IMAGES, workers=workers)
    found = {}
    for name, told, ranks in (
        ("noise", identify(records), [record.rank for record in records]),
        ("placebo", identify_placebos(records), [record.placebo for record in records]),
    ):
        assert told is not None
        known = [rank for rank in ranks if rank is not None]
        groups = [known[at : at + 10] for at in range(0, len(known), 10)]
        ps = [rank_sum_p([one.rank for one in group], [len(one.decoys) for one in group]) for group in groups]
        found[name] = {
            "n": told.n,
            "percentile": told.percentile,
            "interval": (told.low, told.high),
            "p": told.p,
            "first": told.first.count,
            "first_chance": told.first_chance * told.n,
            "groups": len(ps),
            "uniform_p": float(stats.kstest(ps, "uniform").pvalue),
            "below_5_percent": sum(p < 0.05 for p in ps),
        }
    return {"defense": NOISE, "iterations": NOISE_STEPS, **found}


def draw(shown: Sequence[tuple[str, Sequence[Record]]], path: Path) -> None:
    """Rows of pictures: private, rebuilt, the attacker's estimate, and the decoy most like what was rebuilt."""
    chosen = [shown[place] for place in (0, 2, 10, 11, 14, 15, 16)]
    tile, gap, label, cells = 56, 4, 210, 3 * len(SHOWN)
    width = label + cells * (tile + gap) + len(SHOWN) * gap
    sheet = Image.new("RGB", (width, 20 + len(chosen) * (tile + gap) + gap), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for column in range(len(SHOWN)):
        for part, title in enumerate(("private", "rebuilt", "estimate")):
            x = label + (3 * column + part) * (tile + gap) + column * 2 * gap
            pen.text((x, 4), title, fill="black", font=font)
    for row, (title, records) in enumerate(chosen):
        y = 20 + row * (tile + gap)
        mean = statistics.fmean(record.percentile or 0.0 for record in records)
        pen.multiline_text((4, y + 4), f"{title}, ranks above {mean:.0%}", fill="black", font=font, spacing=2)
        for column, place in enumerate(SHOWN):
            record = records[place]
            for part, name in enumerate(("original", "reconstruction", ESTIMATE)):
                png = record.pictures.get(name, record.pictures["reconstruction"])
                x = label + (3 * column + part) * (tile + gap) + column * 2 * gap
                sheet.paste(from_png(png).convert("RGB").resize((tile, tile), Image.Resampling.NEAREST), (x, y))
    with writing(path) as temporary:
        sheet.save(temporary, format="PNG", optimize=True)


if __name__ == "__main__":
    for row in run(workers=int(os.environ.get("WORKERS", "1")))["rows"]:  # type: ignore[attr-defined]
        print(row["model"], row["defense"], row["attacker"], f"{row['percentile']:.2f}", row["interval"], row["first"])
    print(f"written: {RESULT}, {PICTURES}")
