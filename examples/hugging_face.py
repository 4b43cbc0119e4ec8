"""A Hugging Face image classifier: its processor's normalisation goes into the model, then it adapts like any other.

    pip install '.[hf]'
    python examples/hugging_face.py

With a network, take a trained one: AutoModelForImageClassification.from_pretrained("microsoft/resnet-50") and
AutoImageProcessor.from_pretrained("microsoft/resnet-50"). Here the weights are random, so that nothing is downloaded.
"""

from __future__ import annotations

import torch
from transformers import (
    ConvNextImageProcessor,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

import steep


def models() -> dict[str, PreTrainedModel]:
    """A ResNet (BatchNorm) and a vision transformer (LayerNorm), both small."""
    resnet = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    vit = ViTConfig(image_size=32, patch_size=8, num_labels=10, **sizes)
    return {"resnet": ResNetForImageClassification(resnet), "vit": ViTForImageClassification(vit)}


def main() -> dict[str, float]:
    """Adapt both on a stream; print by how much the mean entropy of their answers fell."""
    torch.manual_seed(0)
    images = torch.rand(64, 3, 32, 32)  # yours: RGB, float, values in [0, 1], resized as the processor would
    processor = ConvNextImageProcessor()  # of a real one: AutoImageProcessor.from_pretrained(...)
    fell = {}
    for name, model in models().items():
        ready = steep.models.normalized(model.eval(), processor)
        adapter = steep.adapt(ready, "tent", lr=1e-2)
        entropies = []
        for _ in range(5):
            logits = adapter(images)  # a tensor of logits, whatever the model wraps them in
            entropies.append(torch.distributions.Categorical(logits=logits).entropy().mean().item())
        fell[name] = entropies[0] - entropies[-1]
        print(f"{name:8} entropy {entropies[0]:.3f} → {entropies[-1]:.3f}, last loss {adapter.last.loss:.3f}")
    return fell


if __name__ == "__main__":
    main()
