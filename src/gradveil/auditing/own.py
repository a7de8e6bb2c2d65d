"""An audit of objects: your model and your data loader as they are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from gradveil.attacks import Attack, fast
from gradveil.auditing.matrix import run_audit, spread_indices
from gradveil.auditing.notes import RunNotes
from gradveil.auditing.plan import AuditPlan
from gradveil.auditing.study import Study
from gradveil.client import batch_norm_mode, trainable_parameters
from gradveil.datasets.loaders import Batches, dataset_from_loader
from gradveil.defenses import Defense
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.leakage.threat import Threat
from gradveil.leakage.threat_texts import parse_threat
from gradveil.models.losses import CROSS_ENTROPY, BinaryCrossEntropy, Loss, loss_function, with_loss
from gradveil.models.normalizing import input_normalization, with_normalization
from gradveil.models.stochastic import drawing
from gradveil.progress import Progress, silent
from gradveil.training.stage import Stage
from gradveil.types import Dataset, to_unit


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
    threats: Sequence[Threat | str] = (),
    images: int = 32,
    tune: bool = True,
    seed: int = 0,
    workers: int = 1,
    device: Device = CPU,
    progress: Progress = silent,
) -> Study:
    """Attack the gradients of `model`, as it is now, on images of `loader`; the model is a module or a LightningModule.

    - `public` is a loader of images that the attacker may know; without it, a fifth of the loader's.
    - `mean` and `std` are those by which the loader normalises its images, and so what the model expects.
    - `loss` is that of the training: `smoothing=0.1` or `bce` where it is not cross entropy.
    - `threats` say who attacks and how participants train: objects, or texts such as `fedsgd:images=4` and `ours.toml`. The
      network is attacked as it is, whatever stages they name.
    - `tune`: other settings of every attack are tried on a few images first.
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
    parsed = (parse_threat(one) if isinstance(one, str) else one for one in threats)
    now = tuple(replace(threat, stages=None, rounds=()) for threat in parsed)
    if dataset.train.targets is not None:
        _check_several_labels(audited, dataset, images=images, seed=seed)
    if mean is not None and std is not None and input_normalization(model) is None:
        audited = with_normalization(audited, mean, std)
    stages = (Stage("weights"),)
    plan = AuditPlan(
        audited,
        tuple(defenses),
        tuple(attacks),
        stages,
        images=images,
        seed=seed,
        device=device,
        threats=now,
        tune=tune,
    )
    notes = RunNotes(title=f"Audit of {type(model).__name__} on the images of its loader", commands=())
    return run_audit(plan, dataset, Path(folder), workers=workers, notes=lambda plans: notes, progress=progress)


def _check_several_labels(model: nn.Module, dataset: Dataset, *, images: int, seed: int) -> None:
    """Refuse an audit of images with several labels that could not be made, or could say nothing."""
    if not isinstance(loss_function(model), BinaryCrossEntropy):
        raise GradveilError(
            'labels of the loader are 0 and 1 per label: say the loss, loss="bce"; where every image has one class, give its '
            "number, labels.argmax(1)"
        )
    train = dataset.train
    with torch.no_grad(), batch_norm_mode(model, training=False), drawing(model, torch.zeros):
        logits = model(to_unit(train.images[:1]).to(trainable_parameters(model)[1][0].device))
    if logits.shape[1:] != (train.outputs,):
        raise GradveilError(f"expected as many labels as outputs of the model, {logits.shape[-1]}, got {train.outputs}")
    sizes = train.labels.bincount(minlength=len(train.classes))
    told = int((sizes[train.labels[spread_indices(train, images, seed=seed)]] > 1).sum())
    if told < images:
        raise GradveilError(
            f"expected images with others of the same labels to be told from, got {told} of {images}: attack {told} or fewer, or "
            "leave rare labels out"
        )
