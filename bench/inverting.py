"""Time to the published quality: Inverting Gradients as published against `fast` (`python -m bench.inverting`).

Ten images on each of two untrained networks. The published procedure runs its 4,800 iterations and sets the mark, its mean PSNR
in the end; ours must get there. Both run on one thread of the same process, image by image in turns, so that whatever else the
machine does slows both. Takes over an hour, goes on where it was killed, and leaves `runs/inverting.json`.
"""

import json
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

from bench.attacks import MODELS, evidence_of, published_loop
from gradveil.attacks import parse_attack
from gradveil.datasets import load
from gradveil.io.files import write_json
from gradveil.leakage import metrics
from gradveil.models import untrained_model
from gradveil.parallel import using_one_thread
from gradveil.progress import bar

IMAGES, PUBLISHED, EVERY = 10, 4800, 50
FOLDER, RESULT = Path("runs/inverting"), Path("runs/inverting.json")


def run() -> dict[str, object]:
    """Attack what is missing below `FOLDER`, compare, and write `RESULT`."""
    jobs = [(index, model, who) for index in range(IMAGES) for model in MODELS for who in ("ours", "published")]
    found = {}
    with using_one_thread(), bar("attacks", len(jobs), "images") as advance:
        for index, model, who in jobs:
            path = FOLDER / f"{who}-{model}-{index}.json"
            if not path.exists():
                write_json(path, _attacked(model, index, who))
            found[who, model, index] = json.loads(path.read_text())
            advance(1)
    summary = {
        "images": IMAGES,
        "dataset": "fashion-mnist-tenth",
        "published": f"adam+cosine, {PUBLISHED} iterations",
        "ours": f"fast, {parse_attack('fast').iterations} iterations",
        "torch": torch.__version__,
        "models": [_compared(model, found) for model in MODELS],
    }
    write_json(RESULT, summary)
    return summary


def _attacked(name: str, index: int, who: str) -> dict[str, object]:
    dataset = load("fashion-mnist-tenth")
    model = untrained_model(name, dataset).eval()
    evidence, batch = evidence_of(model, dataset, index)
    history: list[tuple[int, float]] = []

    def watch(done: int, image: Tensor) -> None:
        if done % EVERY == 0:
            history.append((done, round(float(metrics.psnr(image, batch.images)), 3)))

    # Processor time of this one thread: what else the machine does changes it least.
    start, cpu = time.perf_counter(), time.process_time()
    if who == "ours":
        image = parse_attack("fast")(evidence, seed=index).images
    else:
        image = published_loop(model, evidence.gradients, batch.labels, seed=index, iterations=PUBLISHED, watch=watch)
    return {
        "wall": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "psnr": float(metrics.psnr(image, batch.images)),
        "history": history,
    }


def _compared(model: str, found: dict[tuple[str, str, int], dict[str, float]]) -> dict[str, object]:
    row: dict[str, object] = {"model": model}
    for who in ("ours", "published"):
        runs = [found[who, model, index] for index in range(IMAGES)]
        row[who] = {
            "psnr": statistics.fmean(one["psnr"] for one in runs),
            "psnr_sd": statistics.stdev(one["psnr"] for one in runs),
            "seconds": statistics.fmean(one["cpu"] for one in runs),
            "wall": statistics.fmean(one["wall"] for one in runs),
            "images": [{name: one[name] for name in ("psnr", "cpu", "wall")} for one in runs],
        }
    pairs = [(found["ours", model, index], found["published", model, index]) for index in range(IMAGES)]
    differences = [ours["psnr"] - theirs["psnr"] for ours, theirs in pairs]
    ratios = [theirs["cpu"] / ours["cpu"] for ours, theirs in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    row["psnr_difference"] = statistics.fmean(differences)
    row["psnr_difference_se"] = statistics.stdev(differences) / len(differences) ** 0.5
    row["times_faster"] = middle
    row["times_faster_quartiles"] = (low, high)
    return row


if __name__ == "__main__":
    for row in run()["models"]:  # type: ignore[attr-defined]
        print(f"{row['model']:12} {row['times_faster']:.1f}x faster, {row['psnr_difference']:+.2f} dB")
    print(f"written: {RESULT}")
