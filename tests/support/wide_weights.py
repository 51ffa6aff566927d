"""Random weights for tiny models of transformers."""
import torch


def randomise(model, seed):
    """Sets every parameter, from one seeded generator, so that a rerun makes the same model: weights are wide enough for attention
    to have shape."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(1.1 / parameter.shape[-1] ** 0.5 * noise)
