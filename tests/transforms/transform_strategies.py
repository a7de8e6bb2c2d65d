"""Images and policies made by hypothesis."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from gradveil.transforms import LIBRARY, OPERATIONS, Policy, operation

operations = st.one_of(
    st.sampled_from(LIBRARY), st.builds(operation, st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9))
)
members = st.lists(operations, min_size=1, max_size=3).map(tuple)
policies = st.lists(members, min_size=1, max_size=3).map(tuple).map(Policy)


@st.composite
def image_batches(draw: st.DrawFn, channels: tuple[int, ...] = (1, 3)) -> Tensor:
    """Small batches of odd sizes: noise, flat, two-valued, few-valued, ramps, extremes."""
    shape = (
        draw(st.integers(1, 3)),
        draw(st.sampled_from(channels)),
        draw(st.integers(1, 13)),
        draw(st.integers(1, 13)),
    )
    rng = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    noise = torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
    kind = draw(st.sampled_from(["noise", "flat", "two-valued", "narrow", "ramp", "extremes"]))
    low, high = draw(st.integers(0, 255)), draw(st.integers(0, 255))
    if kind == "flat":
        return torch.full(shape, low, dtype=torch.uint8)
    if kind == "two-valued":
        return torch.where(noise > 127, low, high).to(torch.uint8)
    if kind == "narrow":
        low, high = sorted((low, high))
        return (low + noise.to(torch.int64) % (high - low + 1)).to(torch.uint8)
    if kind == "ramp":
        return (torch.arange(noise.numel()) % 256).to(torch.uint8).view(shape)
    if kind == "extremes":
        return torch.where(noise > 127, 0, 255).to(torch.uint8)
    return noise
