"""`gradveil invert`: rebuild images from gradients that were saved somewhere else."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradveil.cli.options import (
    DEFAULT_MODEL,
    AttackOption,
    DeviceOptions,
    IterationsOption,
    JsonOption,
    LossOption,
    NewModelOption,
    NormalizeOption,
    SeedOption,
    WeightsOption,
    name_around,
    parse_numbers,
)
from gradveil.cli.output import check_folder, emit, say, say_estimate
from gradveil.errors import GradveilError
from gradveil.io.files import writing
from gradveil.progress import bar

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradveil.attacks import Reconstruction


def invert(
    *,
    gradients: Annotated[Path, Argument(help="safetensors or .pt file, a tensor per parameter name.")],
    model: NewModelOption = DEFAULT_MODEL,
    weights: WeightsOption = None,
    image_shape: Annotated[str, Option(help="Channels x height x width.")] = "1x28x28",
    classes: Annotated[int, Option(help="How many classes the model has.", min=1, max=1_000_000)] = 10,
    labels: Annotated[str | None, Option(help="Such as 3 or 1,5,5. Default: read off the gradient.")] = None,
    images: Annotated[
        int | None,
        Option(help="How many images are behind the gradient. Default: as many as labels, or 1.", min=1, max=100),
    ] = None,
    attack: AttackOption = "fast",
    iterations: IterationsOption = None,
    client: Annotated[
        str, Option(help="fedsgd, or for (weights before - after) / lr: fedavg:batch=1,lr=0.01,epochs=1.")
    ] = "fedsgd",
    batch_norm: Annotated[
        str, Option(help="eval or train: how batch norm worked when the gradient was computed.")
    ] = "eval",
    normalize: NormalizeOption = None,
    loss: LossOption = None,
    originals: Annotated[
        Path | None, Option(help="The private images to compare with: a picture, or a folder of as many as there are.")
    ] = None,
    out: Annotated[Path, Option(help="Folder for the pictures.")] = Path("runs/invert"),
    where: DeviceOptions,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Rebuild the images behind a gradient of your own system. No dataset is needed.

    Examples:

        gradveil invert gradient.safetensors --model lenet --weights model.safetensors --attack idlg
        gradveil invert update.safetensors --model my_package.nets:build --image-shape 3x32x32 --images 8 --attack fast
        gradveil invert gradient.pt --model my_nets:Net --weights w.pt --batch-norm train --originals my/pictures
    """
    from gradveil.attacks import parse_attack
    from gradveil.attacks.inverting import invert as run
    from gradveil.auditing.rough import rough_inverting_seconds
    from gradveil.client import batch_norm_mode, parse_client
    from gradveil.models import build
    from gradveil.parallel import using_one_thread

    check_folder(out)
    if batch_norm not in ("eval", "train"):
        raise GradveilError(f"expected batch norm eval, train, got {batch_norm!r}")
    shape, device = parse_shape(image_shape), where.choose()
    network = build(name_around(model, normalize, loss), shape, classes, seed=seed).eval()
    if weights is not None:
        _load(network, weights, f"{classes} classes and {image_shape}")
    else:
        say(
            f"no --weights: {model} has the untrained weights of seed {seed}; a gradient of other weights gives nothing back"
        )
    given = None if labels is None else parse_numbers(labels, "labels such as 3 or 1,5,5")
    count = images or (1 if given is None else len(given))
    if given is not None and len(given) != count:
        raise GradveilError(
            f"expected a label per image, got {len(given)} in --labels and --images {count}: leave one out"
        )
    chosen = parse_attack(attack, iterations=iterations)
    truth = None if originals is None else read_originals(originals, shape)
    if truth is not None and len(truth) != count:
        raise GradveilError(
            f"{originals}: expected as many originals as images behind the gradient, {count}, got {len(truth)}"
        )
    network = device.place(network)
    with (
        using_one_thread(),
        batch_norm_mode(network, training=batch_norm == "train"),
        device.computing("--images"),
    ):
        rebuild = partial(
            run,
            network,
            gradients,
            given,
            attack=chosen,
            image_shape=shape,
            seed=seed,
            images=count,
            client=parse_client(client),
        )
        say_estimate(rough_inverting_seconds(chosen, lambda look: rebuild(on_iteration=look), device=device))
        with bar(f"{attack} on {model}", chosen.steps, "steps") as advance:
            found = rebuild(on_iteration=lambda: advance(1))
        found = replace(found, images=found.images.cpu())
    compared = None if truth is None else compare(found.images, truth)
    similarity = None if found.trace is None else float(found.trace.similarity[-1].mean())
    pictures = save_pictures(found, out)
    if json:
        emit(
            {
                "attack": attack,
                "pictures": pictures,
                "labels": None if found.labels is None else found.labels.tolist(),
                "ended": found.ended,
                "device": device.kind,
                "iterations": found.iterations,
                "restarts": found.restarts,
                "similarity": similarity,
                "compared": compared,
            }
        )
        return
    if found.diverged:
        say("the attack diverged: its gradient is no nearer to yours than zero is; the pictures mean nothing")
    if similarity is not None:
        say(f"similarity of the gradients: {similarity:.3f}, the mean cosine over parameters; 1 is the same direction")
    for number, one in enumerate(compared or []):
        say(f"original {number} and picture {one['picture']:g}: PSNR {one['psnr']:.1f} dB, SSIM {one['ssim']:.2f}")
    labelled = "unknown" if found.labels is None else ", ".join(map(str, found.labels.tolist()))
    say(f"{len(pictures)} pictures in {out}, labels {labelled}")


def save_pictures(found: "Reconstruction", out: Path) -> list[Path]:
    """Write a picture of each rebuilt image, and how it came about where that was kept."""
    from gradveil.io.animation import to_gif
    from gradveil.io.pictures import to_pil
    from gradveil.types import to_bytes

    pictures = [out / f"{number}.png" for number in range(len(found.images))]
    for number, path in enumerate(pictures):
        with writing(path) as temporary:
            to_pil(to_bytes(found.images)[number]).save(temporary, format="PNG")
        if found.trace is not None:
            with writing(path.with_suffix(".gif")) as temporary:
                temporary.write_bytes(to_gif(found.trace.frames[:, number]))
    return pictures


def _load(network: "nn.Module", weights: Path, built: str) -> None:
    from gradveil.models.weights import load_state

    try:
        load_state(network, weights)
    except GradveilError as error:
        raise GradveilError(f"{error}; {built} are --classes and --image-shape") from None


def read_originals(path: Path, shape: tuple[int, int, int]) -> "Tensor":
    """A picture, or those of a folder in the order of their names, as uint8 (N, C, H, W)."""
    import numpy as np
    import torch

    from gradveil.io.pictures import decode_image, refusing_huge_images, to_eight_bit

    files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    found = []
    for file in files:
        if not file.is_file():
            raise GradveilError(f"{file}: no such picture")
        try:
            with refusing_huge_images():
                pixels = np.array(to_eight_bit(decode_image(file.read_bytes())))
        except GradveilError as error:
            raise GradveilError(f"{file}: {error}") from error
        image = torch.from_numpy(pixels if pixels.ndim == 3 else pixels[..., None]).permute(2, 0, 1)
        if image.shape != shape:
            raise GradveilError(f"{file}: expected a picture {shape}, got {tuple(image.shape)}")
        found.append(image)
    if not found:
        raise GradveilError(f"{path}: expected pictures to compare with, got none")
    return torch.stack(found)


def compare(rebuilt: "Tensor", originals: "Tensor") -> list[dict[str, float]]:
    """Per original, which rebuilt picture is most like it, each taken once, and how like it is."""
    from gradveil.leakage.metrics import psnr, ssim
    from gradveil.leakage.results import assignment
    from gradveil.types import to_unit

    truth = to_unit(originals)
    order = assignment(rebuilt, truth)
    figures = zip(
        order.tolist(), psnr(rebuilt[order], truth).tolist(), ssim(rebuilt[order], truth).tolist(), strict=True
    )
    return [
        {"picture": picture, "psnr": round(first, 2), "ssim": round(second, 4)} for picture, first, second in figures
    ]


def parse_shape(text: str) -> tuple[int, int, int]:
    """`3x32x32` to numbers."""
    match = re.fullmatch(r"([13])x(\d{1,4})x(\d{1,4})", text)
    if match is None:
        raise GradveilError(f"expected channels (1 or 3) x height x width, such as 1x28x28, got {text!r}")
    return int(match[1]), int(match[2]), int(match[3])
