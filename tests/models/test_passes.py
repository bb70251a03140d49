"""Passes written out give what autograd gives: logits and gradients, with and without images that are only predicted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from driftline.models.build import build_model
from driftline.models.passes import Passes
from driftline.models.weight_gradient import weight_gradient


def live_model(name="resnet-tiny", norm="group", seed=0):
    """Norms with something to do: as they begin, blocks are short cuts and shifts are zero."""
    model = build_model(name, 7, norm, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter, 1.0, 0.3)
    return model


def drawn(num, size, seed=0):
    return torch.randn(num, 3, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_autograd(model, images, factors):
    """Logits, and the gradients of a loss that weighs them."""
    logits = model(images)
    return logits, torch.autograd.grad((logits * factors).sum(), list(model.parameters()))


@pytest.mark.parametrize(
    ("name", "size"),
    [("resnet-tiny", 32), ("resnet-tiny", 48), ("resnet18", 64), ("resnet18", 40), ("resnet50", 64)],
)
@pytest.mark.parametrize("num_predicted", [0, 3])
def test_logits_and_gradients_are_those_of_autograd(name, size, num_predicted):
    model = live_model(name).double()
    images = drawn(num_predicted + 4, size)
    factors = torch.randn(4, 7, dtype=torch.float64)
    predicted, logits = Passes(model)(images, num_predicted)
    gradients = torch.autograd.grad((logits * factors).sum(), list(model.parameters()))
    expected, expected_gradients = by_autograd(model, images[num_predicted:], factors)
    # Logits are handed out in float32.
    assert_close(logits, expected.float(), rtol=1e-5, atol=1e-5)
    assert_close(predicted, model(images[:num_predicted]).detach().float(), rtol=1e-5, atol=1e-5)
    assert not predicted.requires_grad
    for (parameter_name, parameter), found, wanted in zip(
        model.named_parameters(), gradients, expected_gradients, strict=True
    ):
        assert found.dtype == parameter.dtype
        assert found.stride() == parameter.stride()
        scale = float(wanted.abs().max()) + 1e-12
        assert_close(found / scale, wanted / scale, rtol=0, atol=1e-6, msg=parameter_name)


def test_what_is_only_predicted_leaves_no_trace_in_the_gradients():
    model = live_model()
    images = drawn(8, 32).float()
    found = []
    for others in (drawn(5, 32, seed=1).float(), 100 * drawn(5, 32, seed=2).float()):
        _, logits = Passes(model)(torch.cat([others, images]), 5)
        found.append(torch.autograd.grad(logits.square().sum(), list(model.parameters())))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "size"), [("resnet-tiny", 32), ("resnet18", 64)])
def test_sixteen_bits_round_as_autocast_does(name, size):
    model = live_model(name)
    images = drawn(12, size).float()
    predicted, logits = (found.detach() for found in Passes(model)(images, 4, torch.bfloat16))
    assert logits.dtype == torch.float32
    with torch.no_grad():
        exact = model(images)
        with torch.autocast("cpu", torch.bfloat16):
            expected = model(images).float()
    # As near to the exact logits as autocast comes, whichever way the kernels sum.
    error = (expected - exact).abs().max()
    assert float((torch.cat([predicted, logits]) - exact).abs().max()) <= 1.5 * float(error)


@pytest.mark.parametrize(("name", "size"), [("resnet-tiny", 32), ("resnet18", 64)])
def test_gradients_in_sixteen_bits_are_as_exact_as_those_of_autocast(name, size):
    model, exact = live_model(name), live_model(name).double()
    images, factors = drawn(16, size), torch.randn(16, 7, dtype=torch.float64)
    _, wanted = by_autograd(exact, images, factors)
    _, logits = Passes(model)(images.float(), 0, torch.bfloat16)
    by_hand = torch.autograd.grad((logits * factors).sum(), list(model.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images.float())
    automatic = torch.autograd.grad((logits.float() * factors).sum(), list(model.parameters()))
    for (parameter, _), truth, ours, theirs in zip(
        model.named_parameters(), wanted, by_hand, automatic, strict=True
    ):
        assert float((ours - truth).norm()) <= 1.2 * float((theirs - truth).norm()), parameter


def test_training_by_hand_and_by_autograd_goes_the_same_way():
    """Ten updates in double precision, each from what the last one left."""
    by_hand, automatic = live_model().double(), live_model().double()
    passes = Passes(by_hand)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (by_hand, automatic)]
    labels = torch.arange(6) % 7
    for step in range(10):
        images = drawn(9, 32, seed=step)
        logits = passes(images, 3)[1], automatic(images[3:]).float()
        for of_model, optimizer in zip(logits, optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(of_model, labels).backward()
            optimizer.step()
    for a, b in zip(by_hand.parameters(), automatic.parameters(), strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_only_our_networks_with_group_norm_are_written_out():
    assert Passes.of(build_model("resnet50", 3, "group", 0)) is not None
    assert Passes.of(build_model("resnet18", 3, "batch", 0)) is None
    assert Passes.of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(8, 8))) is None


@settings(max_examples=60, deadline=None)
@given(
    side=st.integers(1, 9),
    kernel=st.sampled_from([1, 3, 5, 7]),
    stride=st.integers(1, 4),
    num=st.integers(1, 5),
    inputs=st.integers(1, 4),
    outputs=st.integers(1, 4),
)
def test_the_gradient_of_weights_by_pairs_of_pixels(side, kernel, stride, num, inputs, outputs):
    x = torch.randn(num, inputs, side, side, dtype=torch.float64)
    weight = torch.randn(outputs, inputs, kernel, kernel, dtype=torch.float64, requires_grad=True)
    y = torch.conv2d(x, weight, stride=stride, padding=kernel // 2)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    assert_close(weight_gradient(gradient, x, kernel, stride), weight.grad)
