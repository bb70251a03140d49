"""The networks: their shapes and sizes, what their norms depend on, and weights that follow the seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driftline.models.build import build_model
from driftline.models.resnet import MODELS
from driftline.types import DriftlineError


@pytest.mark.parametrize(
    ("name", "size"), [("resnet-tiny", 32), ("resnet-tiny", 8), ("resnet18", 64), ("resnet50", 64)]
)
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_one_logit_for_each_class(name, size, norm):
    model = build_model(name, 7, norm, seed=0).eval()
    with torch.no_grad():
        assert model(torch.randn(2, 3, size, size)).shape == (2, 7)


@pytest.mark.parametrize(("name", "num_weights"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_full_size_networks_have_the_published_number_of_weights(name, num_weights):
    model = build_model(name, 1000, "batch", seed=0)
    assert sum(p.numel() for p in model.parameters()) == num_weights


def test_the_small_network_is_small():
    assert (
        200_000 < sum(p.numel() for p in build_model("resnet-tiny", 100, "group", 0).parameters()) < 400_000
    )


def moved(model):
    """How much the output for an image changes when other images stand beside it, in training mode."""
    model.train()
    image, others = torch.randn(1, 3, 32, 32), 5 + 3 * torch.randn(7, 3, 32, 32)
    with torch.no_grad():
        alone = model(torch.cat([image, image]))[:1]
        together = model(torch.cat([image, others]))[:1]
    return float((alone - together).abs().max())


def live_model(norm):
    """Blocks begin as short cuts; give them something to do."""
    model = build_model("resnet-tiny", 5, norm, seed=0)
    for module in model.modules():
        if isinstance(module, nn.GroupNorm | nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    return model


def test_group_norm_looks_at_one_image_and_batch_norm_at_the_batch():
    assert moved(live_model("group")) < 1e-4
    assert moved(live_model("batch")) > 1e-2


def test_batch_norm_predicts_with_its_running_means():
    model = live_model("batch")
    images = 5 + 3 * torch.randn(16, 3, 32, 32)
    before = {name: value.clone() for name, value in model.state_dict().items() if "running_mean" in name}
    model.train()(images)
    after = model.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)
    model.eval()
    with torch.no_grad():
        assert torch.allclose(model(images)[:1], model(images[:1]), atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_weights_follow_the_seed_and_nothing_else(name):
    torch.manual_seed(1)
    a = build_model(name, 5, "group", seed=3).state_dict()
    torch.rand(100)
    state = torch.random.get_rng_state()
    b = build_model(name, 5, "group", seed=3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state), "making a model moved the global generator"
    c = build_model(name, 5, "group", seed=4).state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])


def test_blocks_start_as_short_cuts():
    model = build_model("resnet-tiny", 5, "group", seed=0)
    with torch.no_grad():
        x = torch.relu(torch.randn(2, 32, 16, 16))
        assert torch.allclose(model.blocks[0](x), x)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(DriftlineError, match=r"model = 'vgg': choose one of resnet-tiny, resnet18, resnet50"):
        build_model("vgg", 5, "group", 0)


def test_a_model_of_timm_needs_the_extra_or_a_name_that_exists():
    with pytest.raises(DriftlineError, match=r"timm:no-such-model"):
        build_model("timm:no-such-model", 5, "group", 0)
