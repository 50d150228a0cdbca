"""Kernel objects of the gpytorch library, and their structure as plain data for checkpoints."""

import inspect
from collections.abc import Iterator
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput, MissingExtra
from .covariance import Factor, factorise

Description = dict[str, Any]
Plain = bool | int | float | str

_EVALUATING = Lock()  # gpytorch takes a kernel's `active_dims` off while it evaluates it


class GPyTorchKernel(nn.Module):
    """A = K + σ²I with K a gpytorch kernel evaluated on the encoder's states, in its own dtype.

    σ² is `noise` times the mean variance of K in the sentence.
    Shapes: G sentences of equal length, n positions, D_h encoder dimensions.
    """

    def __init__(self, kernel: nn.Module, noise: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.noise = noise

    def forward(self, states: Tensor) -> Factor:
        """The factorised covariance of encoder states [G, n, D_h]."""
        matrix = evaluate(self.kernel, states).double()
        matrix = 0.5 * (matrix + matrix.mT)
        noise = self.noise * matrix.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        matrix = matrix + torch.diag_embed(noise.expand(matrix.shape[:-1]))
        return factorise(matrix, lambda: f"the gpytorch kernel {type(self.kernel).__name__}")


def evaluate(kernel: nn.Module, states: Tensor) -> Tensor:
    """K of states [G, n, D_h], dense, [G, n, n]."""
    dtype = next((p.dtype for p in kernel.parameters()), torch.float64)
    with _EVALUATING:
        return kernel(states.to(dtype)).to_dense()


def described(kernel: nn.Module, size: int) -> Description | None:
    """The description of a kernel if it brings the same kernel back, else `None`.

    Args:
        kernel: of gpytorch.
        size: the number of dimensions of its inputs.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # construction may draw numbers
        points = torch.randn(1, 5, size)
        try:
            description = describe(kernel)
            twin = rebuild(description)
            twin.load_state_dict(kernel.state_dict(), assign=True)  # and the number format
            same = torch.allclose(evaluate(twin, points), evaluate(kernel, points))
        except (BadInput, RuntimeError):
            return None
    return description if same else None


def describe(kernel: nn.Module) -> Description:
    """The structure of a kernel as plain data: its class and its simple constructor arguments.

    Parameters are not part of it: they travel in the state dict.
    """
    kind = type(kernel)
    if getattr(_kernels(), kind.__name__, None) is not kind:
        raise BadInput(f"{kind.__module__}.{kind.__qualname__} is not a kernel of gpytorch.kernels")
    arguments: dict[str, Any] = {}
    for parameter in _parameters(kind):
        value = getattr(kernel, parameter.name, None)
        if isinstance(value, Tensor):  # the active dimensions are kept as a buffer
            value = value.tolist()
        if isinstance(value, nn.ModuleList):
            arguments[parameter.name] = [describe(part) for part in value]
        elif isinstance(value, _kernels().Kernel):
            arguments[parameter.name] = describe(value)
        elif isinstance(value, Plain) and value != parameter.default:
            arguments[parameter.name] = value
        elif isinstance(value, list | tuple) and value and all(isinstance(v, Plain) for v in value):
            arguments[parameter.name] = list(value)
    return {"class": kind.__name__, "arguments": arguments}


def rebuild(description: Description) -> nn.Module:
    """The kernel that `describe` described, with fresh parameters."""
    name, arguments = description.get("class"), description.get("arguments")
    kind = getattr(_kernels(), name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, _kernels().Kernel)):
        raise BadInput(f"{name!r} is not a kernel of gpytorch.kernels: hand the kernel object in")
    if not isinstance(arguments, dict):
        raise BadInput(f"the description of the kernel {name} has no arguments: save it again")
    positional: list[nn.Module] = []
    named: dict[str, Any] = {}
    for key, value in arguments.items():
        if isinstance(value, dict):
            named[key] = rebuild(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            positional += [rebuild(part) for part in value]
        else:
            named[key] = tuple(value) if isinstance(value, list) else value
    if "batch_shape" in named:
        named["batch_shape"] = torch.Size(named["batch_shape"])
    try:
        kernel: nn.Module = kind(*positional, **named)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"the gpytorch kernel {name} cannot be built: {error}") from None
    return kernel


def _parameters(kind: type) -> Iterator[inspect.Parameter]:
    """The constructor's parameters, those that it passes on to the classes above it included."""
    for ancestor in kind.__mro__:
        if not issubclass(ancestor, _kernels().Kernel):
            return
        parameters = inspect.signature(ancestor).parameters
        yield from parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return


def _kernels() -> Any:
    """The module `gpytorch.kernels`, imported when first needed."""
    try:
        import gpytorch.kernels
    except ImportError:
        raise MissingExtra("gpytorch", "gpytorch") from None
    return gpytorch.kernels
