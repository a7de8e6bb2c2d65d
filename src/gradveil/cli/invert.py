"""`gradveil invert`: rebuild images from gradients that were saved somewhere else."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from gradveil.cli.options import (
    DEFAULT_MODEL,
    AttackOption,
    DeviceOptions,
    IterationsOption,
    JsonOption,
    NewModelOption,
    SeedOption,
    parse_numbers,
)
from gradveil.cli.output import check_folder, emit, say
from gradveil.errors import GradveilError
from gradveil.io.files import writing
from gradveil.progress import bar


def invert(
    *,
    gradients: Annotated[Path, Argument(help="safetensors file, a tensor per parameter name.")],
    model: NewModelOption = DEFAULT_MODEL,
    weights: Annotated[Path | None, Option(help="The model's weights, safetensors. Default: the seed's.")] = None,
    image_shape: Annotated[str, Option(help="Channels x height x width.")] = "1x28x28",
    classes: Annotated[int, Option(help="How many classes the model has.", min=1)] = 10,
    labels: Annotated[str | None, Option(help="Such as 3 or 1,5,5. Default: read off the gradient.")] = None,
    images: Annotated[int, Option(help="How many images are behind the gradient.", min=1, max=100)] = 1,
    attack: AttackOption = "adam+cosine",
    iterations: IterationsOption = None,
    client: Annotated[
        str, Option(help="fedsgd, or for (weights before - after) / lr: fedavg:batch=1,lr=0.01,epochs=1.")
    ] = "fedsgd",
    out: Annotated[Path, Option(help="Folder for the pictures.")] = Path("runs/invert"),
    where: DeviceOptions,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Rebuild the images behind a gradient of your own system. No dataset is needed.

    Examples:

        gradveil invert gradient.safetensors --model lenet --weights model.safetensors --attack idlg
        gradveil invert update.safetensors --model my_package.nets:build --image-shape 3x32x32 --images 8 --attack fast
    """
    from gradveil.attacks import parse_attack
    from gradveil.attacks.inverting import invert as run
    from gradveil.client import parse_client
    from gradveil.io.animation import to_gif
    from gradveil.io.pictures import to_pil
    from gradveil.models import build
    from gradveil.models.weights import load_state
    from gradveil.parallel import using_one_thread
    from gradveil.types import to_bytes

    check_folder(out)
    shape, device = parse_shape(image_shape), where.choose()
    network = build(model, shape, classes, seed=seed).eval()
    if weights is not None:
        load_state(network, weights)
    given = None if labels is None else parse_numbers(labels, "labels such as 3 or 1,5,5")
    chosen = parse_attack(attack, iterations=iterations)
    with (
        using_one_thread(),
        device.computing("--images"),
        bar(f"{attack} on {model}", chosen.steps, "steps") as advance,
    ):
        found = run(
            device.place(network),
            gradients,
            given,
            attack=chosen,
            image_shape=shape,
            seed=seed,
            images=images if given is None else len(given),
            client=parse_client(client),
            on_iteration=lambda: advance(1),
        )
        found = replace(found, images=found.images.cpu())
    pictures = [out / f"{number}.png" for number in range(len(found.images))]
    for number, path in enumerate(pictures):
        with writing(path) as temporary:
            to_pil(to_bytes(found.images)[number]).save(temporary, format="PNG")
        if found.trace is not None:
            with writing(path.with_suffix(".gif")) as temporary:
                temporary.write_bytes(to_gif(found.trace.frames[:, number]))
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
                "similarity": None if found.trace is None else float(found.trace.similarity[-1].mean()),
            }
        )
        return
    if found.diverged:
        say("the attack diverged: its gradient is no nearer to yours than zero is; the pictures mean nothing")
    say(f"{len(pictures)} pictures in {out}, labels {found.labels.tolist() if found.labels is not None else 'unknown'}")


def parse_shape(text: str) -> tuple[int, int, int]:
    """`3x32x32` to numbers."""
    match = re.fullmatch(r"([13])x(\d{1,4})x(\d{1,4})", text)
    if match is None:
        raise GradveilError(f"expected channels (1 or 3) x height x width, such as 1x28x28, got {text!r}")
    return int(match[1]), int(match[2]), int(match[3])
