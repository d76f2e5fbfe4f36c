"""Modules whose convolutions `test_tir_network` asks for, and what it calls in a process with torch and TVM; the process of the tests itself has no TVM."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from workbench.kernels.networks import Layer
from workbench.kernels.tir.network import from_torch


class Block(nn.Module):
    """The basic block of a residual network."""

    def __init__(self, ci: int, co: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(ci, co, 3, stride, 1, bias=False), nn.BatchNorm2d(co)
        self.conv2, self.bn2 = nn.Conv2d(co, co, 3, 1, 1, bias=False), nn.BatchNorm2d(co)
        self.downsample = nn.Sequential(nn.Conv2d(ci, co, 1, stride, bias=False), nn.BatchNorm2d(co)) if ci != co else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        shortcut = self.downsample(x)
        return torch.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.pool = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1)), nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3, self.layer4 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1)), nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


class EachKind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat, self.spread = nn.Conv1d(4, 8, 3, 2, 1), nn.ConvTranspose1d(8, 4, 4, 2, 1)
        self.dilated, self.depthwise = nn.Conv2d(1, 4, (3, 4), (1, 2), (1, 2), dilation=(1, 2)), nn.Conv2d(4, 8, 3, groups=4)
        self.grouped, self.spread2 = nn.Conv2d(8, 8, 3, groups=2, padding="same"), nn.ConvTranspose2d(8, 4, 3, 2, 1)
        self.twice = nn.Conv2d(4, 4, (1, 5), padding=(0, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.spread(self.flat(x))[:, None]
        x = self.twice(self.twice(self.spread2(self.grouped(self.depthwise(self.dilated(x))))))
        return nn.functional.conv2d(x, torch.ones(3, 4, 1, 1), stride=(2, 1))


class Side(nn.Module):
    """Convolutions side by side on one input."""

    def __init__(self, *convolutions: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(convolutions)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [part(x) for part in self.parts]


class Inexpressible(nn.Module):
    """Four convolutions that no kernel of the workbench is, and one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.deep, self.grown = nn.Conv3d(1, 2, 3), nn.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)
        self.parted, self.wide, self.plain = nn.ConvTranspose1d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, bias=False).double(), nn.Conv2d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [self.deep(x[:, None]), self.grown(x), self.parted(x[:, :, 0]), self.wide(x.double()), self.plain(x)]


class Forks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Spectrum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x).real


def conv1x3x3() -> nn.Module:
    return nn.Conv2d(1, 1, 3)


def linear() -> nn.Module:
    return nn.Linear(4, 2)


def layers(factory: type[nn.Module], *shape: int) -> tuple[Layer, ...]:
    """Of a module in evaluation mode, for zeros of that shape."""
    return from_torch(factory().eval(), (torch.zeros(shape),))


def layers_of_conv2d(drawn: Sequence[tuple[Any, ...]], *shape: int) -> tuple[Layer, ...]:
    """Of convolutions side by side: groups, output channels, filter, stride, padding, dilation of each."""
    convolutions = [nn.Conv2d(shape[1], co, size, stride, padding, dilation, groups) for groups, co, size, stride, padding, dilation in drawn]
    return from_torch(Side(*convolutions).eval(), (torch.zeros(shape),))


def layers_and_notes(factory: type[nn.Module], *shape: int) -> tuple[tuple[Layer, ...], list[tuple[str, bool]]]:
    """Besides the layers each warning, and whether it points at this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = layers(factory, *shape)
    return found, [(str(warning.message), warning.filename == __file__) for warning in caught]


def layers_while_training() -> tuple[Layer, ...]:
    return from_torch(conv1x3x3(), (torch.zeros(1, 1, 8, 8),))


def layers_of_a_list() -> tuple[Layer, ...]:
    return from_torch(conv1x3x3().eval(), [torch.zeros(1, 1, 8, 8)])  # type: ignore[arg-type]
