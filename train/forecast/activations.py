"""What autograd keeps of a DiT's forward pass, in bytes; imports no torch.

Source: the tensors that the operations of `train/model` save, read one by one; tests count the
storages that torch saves and hold these sums to theirs. Under autocast on a GPU the layer norms
and the RMS norms of heads read and write float32, and so do sums in which a float32 takes part.
"""

from dataclasses import dataclass

from configs.schema import Pretrain
from train.model.flops import mlp_hidden, tokens

SIZES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, kw_only=True)
class SavedBytes:
    """Bytes that are kept until the backward pass has used them, and those of its own.

    `image` grows with the micro batch, `once` does not.
    """

    image: float
    once: float = 0.0


def residual_size(config: Pretrain) -> int:
    """Bytes of a number in the stream of tokens: float32 where something float32 is added to it."""
    model = config.model
    widened = model.positions == "sincos" or model.conditioning == "in_context"
    return 4 if widened else SIZES[config.train.precision]


def block_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """What one block saves that is neither recomputed nor compiled, without its weights."""
    model, e, r = config.model, SIZES[config.train.precision], residual_size(config)
    d, adaln = model.width, model.conditioning == "adaln"
    mlp = {"gelu": 2, "swiglu": 4}[model.mlp] * e * mlp_hidden(config) / tensor
    if model.mlp == "swiglu" and e < 4:
        mlp += e * d  # two linear layers read what is float32: each has a copy
    # Of each half: what the norm reads, its mean and spread, what the linear layer reads, and
    # for adaLN also what is scaled and what is gated.
    half = 4 * d + 8 + e * d + (4 * d + r * d) * adaln
    token = 2 * half + _attention(config) / tensor + mlp
    once = 0.0
    if model.positions == "rope" and e < 4 and not model.qk_norm:
        once = 4 * e * tokens(config) * (d // model.heads)  # the table, cast for q and for k
    return SavedBytes(image=tokens(config) * token + _condition(config) * adaln, once=once)


def _attention(config: Pretrain) -> int:
    """Bytes per token that attention saves between its two linear layers."""
    model, e = config.model, SIZES[config.train.precision]
    kept = 4 * e * model.width + 4 * model.heads  # q, k, v and the result; the log of the sums
    if model.qk_norm:
        kept += 8 * model.heads
        # In lower precision q and k are widened for the norm, and the result, laid out as they
        # are, is copied for the layer after it.
        kept += (8 + e) * model.width * (e < 4)
    if model.qk_norm or model.positions == "rope":
        kept += 2 * e * model.width  # q and k are no longer views of what the layer gave
    return kept


def _condition(config: Pretrain) -> int:
    """Bytes per image that the modulation of a block saves: both scales, and its gates."""
    d, e = config.model.width, SIZES[config.train.precision]
    gates = 8 * d if residual_size(config) > e else 6 * e * d
    return 8 * d + gates


def checkpoint_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """What a block keeps of which all is computed again: the tokens that it begins with."""
    return SavedBytes(image=tokens(config) * residual_size(config) * config.model.width)


def operations_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """What a block keeps of which all but matrix products and attention is computed again."""
    model, e = config.model, SIZES[config.train.precision]
    d, hidden = model.width, mlp_hidden(config) * (1 + (model.mlp == "swiglu"))
    split = (e * (4 * d + hidden) + 4 * model.heads) / tensor
    token = residual_size(config) * d + split + 2 * e * d
    return SavedBytes(
        image=tokens(config) * token + 6 * e * d * (model.conditioning == "adaln") / tensor
    )


def edges_kept(config: Pretrain) -> SavedBytes:
    """What is saved before and after the blocks, and the batch itself."""
    model, data, e = config.model, config.data, SIZES[config.train.precision]
    d, patches = model.width, (data.size // model.patch) ** 2
    pixels = 4 * data.channels * data.size**2
    adaln = model.conditioning == "adaln"
    time = e * (256 + 3 * d) + 4 * d + 8 + 4 * d * adaln
    # The image, its noise, the patches that the first layer reads, and the error.
    return SavedBytes(image=patches * _last_norm(config) + time + 3 * pixels + pixels * e // 4)


def _last_norm(config: Pretrain) -> int:
    """Bytes per token that are saved between the blocks and the last layer."""
    d, e = config.model.width, SIZES[config.train.precision]
    return 4 * d + 8 + e * d + 4 * d * (config.model.conditioning == "adaln")


def edges_work(config: Pretrain) -> float:
    """Bytes per image that the backward pass of the last norm holds beside all that is saved.

    The gradients of what it gave and read in float32, and for adaLN their product.
    """
    d, e = config.model.width, SIZES[config.train.precision]
    return tokens(config) * d * (8 + e + 4 * (config.model.conditioning == "adaln"))


def block_work(config: Pretrain, *, tensor: int = 1) -> float:
    """Bytes per image that the backward pass of a recomputed block holds beside what is saved.

    The gradient of the hidden layer, less what was freed behind the blocks.
    """
    hidden = SIZES[config.train.precision] * mlp_hidden(config) / tensor
    return tokens(config) * (hidden + 4 * config.model.width - _last_norm(config))


def compiled_kept(config: Pretrain, *, tensor: int = 1) -> SavedBytes:
    """What one compiled block saves: what costs more than passing over memory to compute again.

    Source: the cut that the partitioner of torch.compile makes through our blocks.
    """
    model, e = config.model, SIZES[config.train.precision]
    d, adaln = model.width, model.conditioning == "adaln"
    mlp = {"gelu": 2, "swiglu": 3}[model.mlp] * e * mlp_hidden(config) / tensor
    norms = 2 * (8 + e * d)
    token = residual_size(config) * d + norms + e * d * (1 + adaln) + mlp
    attention = _attention(config) - 8 * d * (model.qk_norm and e < 4)
    return SavedBytes(
        image=tokens(config) * (token + attention / tensor) + 6 * e * d * adaln,
    )
