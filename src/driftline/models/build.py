"""Models by name: our own networks, and any of timm's where that package is installed."""

from __future__ import annotations

import torch
from torch import nn

from driftline.models.resnet import MODELS, Norm
from driftline.types import DriftlineError


def build_model(name: str, num_classes: int, norm: Norm, seed: int) -> nn.Module:
    """A model with weights drawn from the seed.

    >>> a, b = (build_model("resnet-tiny", 10, "group", seed=3) for _ in range(2))
    >>> all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values()))
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name in MODELS:
            return MODELS[name](num_classes, norm)
        if name.startswith("timm:"):
            return _timm_model(name.removeprefix("timm:"), num_classes)
    raise DriftlineError(f"model = {name!r}: choose one of {', '.join(MODELS)}, or timm:NAME")


def _timm_model(name: str, num_classes: int) -> nn.Module:
    try:
        import timm
    except (
        ImportError,
        RuntimeError,
    ) as error:  # RuntimeError: torchvision's operators do not fit this torch
        raise DriftlineError(
            f"model = 'timm:{name}' needs the timm extra (pip install driftline[timm]): {error}"
        ) from None
    if name not in timm.list_models():
        close = ", ".join(timm.list_models(f"{name[:6]}*")[:5])
        raise DriftlineError(
            f"model = 'timm:{name}': timm has no such model" + (f"; near it: {close}" if close else "")
        )
    model: nn.Module = timm.create_model(name, num_classes=num_classes, pretrained=False)
    return model
