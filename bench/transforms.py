"""Images per second of a policy against a per-image Pillow pipeline, same process, one thread.

Ours starts from a uint8 tensor (B, C, H, W), Pillow from a list of arrays (H, W, C) as datasets hold them; both end
in the same (B, C, H, W) batch, which is checked. Drawing members and signs is inside our time and outside Pillow's.
The two take turns. Beside it stands how many plain copies of the batch fit into our time: what memory alone would allow.
"""

import time

import numpy as np
import torch
from PIL import Image

from bench.measure import side_by_side
from gradveil.datasets import load
from gradveil.parallel import using_one_thread
from gradveil.transforms import Policy
from gradveil.transforms.policy import RandomChoices, effective_steps
from gradveil.transforms.reference import with_pillow

POLICIES = ("3-1-7", "43-18-18", "21-13-3+7-4-15", "9-2-8", "10-14-37")
IN_A_ROW = 5  # calls per measurement: throughput is what is asked for, not the first call after something else
SIZES = {32: 256, 64: 256, 224: 32}  # side -> batch


def run(turns: int = 11) -> list[dict[str, object]]:
    """One row per policy and size; `value` is how many times Pillow's images per second."""
    # As in any training process: having freed a large tensor, malloc keeps memory instead of returning it after every
    # batch.
    torch.empty(30_000_000, dtype=torch.uint8).fill_(0)
    with using_one_thread():
        return [_row(text, side, batch, turns) for side, batch in SIZES.items() for text in POLICIES]


def _row(text: str, side: int, batch: int, turns: int) -> dict[str, object]:
    policy = Policy.parse(text)
    images = pictures(batch, side)
    arrays = [np.ascontiguousarray(image.permute(1, 2, 0).numpy()) for image in images]
    draws = RandomChoices.of(torch.arange(batch), seed=0, epoch=0)
    members = [effective_steps(policy.members[number], 3) for number in draws.member(len(policy))]
    signs = torch.stack([draws.sign(position) for position in range(3)], 1).tolist()

    def with_gradveil() -> torch.Tensor:
        return policy(images)

    def pillow() -> torch.Tensor:
        done = []
        for array, member, drawn in zip(arrays, members, signs, strict=True):
            image = Image.fromarray(array)
            for op, position in member:
                image = with_pillow(op, image, drawn[position] if op.signed else 1)
            done.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
        return torch.stack(done)

    assert torch.equal(with_gradveil(), pillow())
    how = {"turns": turns, "in_a_row": IN_A_ROW}
    compared = side_by_side(with_gradveil, pillow, **how, clock=time.process_time)
    copies = side_by_side(with_gradveil, images.clone, **how, clock=time.process_time)
    settings = (
        f"batches of {batch} colour images, CPU time of one thread, {turns} turns of {IN_A_ROW}, against Pillow one image at "
        f"a time; a plain copy of the batch takes {copies.ratio:.1%} of our time"
    )
    return compared.row(f"policy {text} at {side}x{side}", settings, per=batch, unit="images/s")


def pictures(batch: int, side: int) -> torch.Tensor:
    """Colour pictures made of real ones: three garments as the three channels, scaled to `side`."""
    grey = load("fashion-mnist-tenth").test.images[: 3 * batch].view(batch, 3, 28, 28).float()
    scaled = torch.nn.functional.interpolate(grey, (side, side), mode="bilinear", align_corners=False)
    return scaled.round().to(torch.uint8)
