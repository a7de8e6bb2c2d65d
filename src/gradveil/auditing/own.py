"""An audit of objects: your model and your data loader as they are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from gradveil.attacks import Attack, fast
from gradveil.auditing.matrix import run_audit
from gradveil.auditing.plan import AuditPlan
from gradveil.auditing.study import Study
from gradveil.datasets.loaders import Batches, dataset_from_loader
from gradveil.defenses import Defense
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.leakage.threat import Threat
from gradveil.models.losses import CROSS_ENTROPY, BinaryCrossEntropy, Loss, loss_function, with_loss
from gradveil.models.normalizing import input_normalization, with_normalization
from gradveil.progress import Progress, silent
from gradveil.training.stage import Stage


def audit_model(
    model: nn.Module,
    loader: Batches,
    folder: Path | str,
    *,
    public: Batches | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    loss: Loss | str = CROSS_ENTROPY,
    defenses: Sequence[Defense] = (),
    attacks: Sequence[Attack] = (fast(),),
    threats: Sequence[Threat] = (),
    images: int = 32,
    seed: int = 0,
    workers: int = 1,
    device: Device = CPU,
    progress: Progress = silent,
) -> Study:
    """Attack the gradients of `model`, as it is now, on images of `loader`; the model is a module or a LightningModule.

    - `public` is a loader of images that the attacker may know; without it, a fifth of the loader's.
    - `mean` and `std` are those by which the loader normalises its images, and so what the model expects.
    - `loss` is that of the training: `smoothing=0.1` or `bce` where it is not cross entropy.
    - `threats` say who attacks and how participants train. The network is attacked as it is, whatever stages they name.
    - `device` is where it is attacked.
    - Labels are whole numbers, one per image, or 0 and 1 per label of a binary cross entropy. Then an image is ranked among those
      with the same labels, as it must not be told by these.
    - `images` are attacked. The loader is read up to 10,000 images.

        study = audit_model(model, loader, "runs/mine", mean=(0.5,), std=(0.25,), defenses=[Prune(0.9)])
        print(study.headline, write_page(study))
    """
    if (mean is None) != (std is None):
        raise GradveilError("expected both mean and std of the loader, or none of them, got one")
    dataset = dataset_from_loader(loader, public, mean=mean, std=std, seed=seed)
    audited = with_loss(model, loss)
    if dataset.train.targets is not None and not isinstance(loss_function(audited), BinaryCrossEntropy):
        raise GradveilError('images of the loader have several labels each: say the loss, loss="bce"')
    if mean is not None and std is not None and input_normalization(model) is None:
        audited = with_normalization(audited, mean, std)
    stages = (Stage("weights"),)
    now = tuple(replace(threat, stages=None, rounds=()) for threat in threats)
    plan = AuditPlan(
        audited, tuple(defenses), tuple(attacks), stages, images=images, seed=seed, device=device, threats=now
    )
    return run_audit(plan, dataset, Path(folder), workers=workers, progress=progress)
