"""Trains an OPT with ReLU-sparse layers from scratch on one GPU and writes it as a Hugging Face folder.

python3 scripts/train-wide-model.py --text FILE --out FOLDER [--heldout FILE] [--seconds 230] [--width 1024] [--layers 4]

Uncertain shares of certificates fall with the width of a trained model (docs/certificates.md); this makes one that is
wider than those of models/ from any text of some megabytes (UTF-8, or compressed with xz) in a stated time. The
mean magnitude of activations is added to the loss, which is what makes them sparse. Needs torch, transformers and
tokenizers. Prints one line of JSON: steps, tokens, perplexity and active share by layer on the held-out text.
"""

import argparse
import json
import lzma
import math
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import OPTConfig, OPTForCausalLM

CONTEXT = 512
BEGIN, PADDING = 2, 1
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--heldout")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--sparsity", type=float, default=0.3, help="weight of the mean magnitude of activations")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def read_text(path):
    raw = Path(path).read_bytes()
    return (lzma.decompress(raw) if path.endswith(".xz") else raw).decode("utf-8", "ignore")


def pieces_of(text, size=40_000):
    return [text[at : at + size] for at in range(0, len(text), size)]


def train_tokenizer(text, vocabulary):
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(pieces_of(text[:15_000_000]), trainer)
    tokenizer.post_processor = TemplateProcessing(single="</s> $A", special_tokens=[("</s>", BEGIN)])
    return tokenizer


def token_ids(tokenizer, text):
    encoded = tokenizer.encode_batch(pieces_of(text), add_special_tokens=False)
    return torch.tensor([token for piece in encoded for token in piece.ids], device="cuda")


class Activations:
    """What goes into the second projections of a forward pass."""

    def __init__(self, layers):
        self.seen = []
        self.hooks = [layer.fc2.register_forward_pre_hook(self.note) for layer in layers]

    def note(self, _module, inputs):
        self.seen.append(inputs[0])

    def take(self):
        seen, self.seen = self.seen, []
        return seen

    def remove(self):
        for hook in self.hooks:
            hook.remove()


def windows(ids, count, generator):
    begins = torch.randint(0, len(ids) - CONTEXT - 1, (count, 1), device="cuda", generator=generator)
    return ids[begins + torch.arange(CONTEXT + 1, device="cuda")]


def loss_of(model, batch):
    logits = model(batch[:, :-1], use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def train(model, ids, arguments):
    """Runs until the time is over: warm-up, then a cosine; the penalty grows over the first third."""
    decays = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=arguments.rate, betas=(0.9, 0.95), fused=True)
    activations = Activations(model.model.decoder.layers)
    generator = torch.Generator("cuda").manual_seed(arguments.seed + 1)
    began, steps = time.monotonic(), 0
    while (progress := (time.monotonic() - began) / arguments.seconds) < 1:
        warm = min(1.0, (steps + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model, windows(ids, arguments.batch, generator))
        magnitudes = torch.stack([active.float().abs().mean() for active in activations.take()])
        (loss + arguments.sparsity * min(1.0, 3 * progress) * magnitudes.mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
    activations.remove()
    return steps


@torch.inference_mode()
def judge(model, ids):
    """Perplexity, and the share of activations that are not zero, by layer."""
    activations = Activations(model.model.decoder.layers)
    generator = torch.Generator("cuda").manual_seed(7)
    losses, shares = [], []
    for _ in range(8):
        losses.append(loss_of(model, windows(ids, 16, generator)).item())
        shares.append([(active != 0).float().mean().item() for active in activations.take()])
    activations.remove()
    by_layer = [sum(layer) / len(layer) for layer in zip(*shares)]
    return {"perplexity": math.exp(sum(losses) / len(losses)), "activeShares": by_layer}


def save(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save(str(Path(folder) / "tokenizer.json"))
    names = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "model_max_length": 2 * CONTEXT, **names}
    (Path(folder) / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def main():
    arguments = parse_arguments()
    text = read_text(arguments.text)
    tokenizer = train_tokenizer(text, arguments.vocabulary)
    ids = token_ids(tokenizer, text)
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    config = OPTConfig(
        vocab_size=arguments.vocabulary,
        hidden_size=arguments.width,
        word_embed_proj_dim=arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.width // 64,
        ffn_dim=4 * arguments.width,
        max_position_embeddings=2 * CONTEXT,
        dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=BEGIN,
        eos_token_id=BEGIN,
        pad_token_id=PADDING,
    )
    model = OPTForCausalLM(config).cuda().train()
    steps = train(model, ids, arguments)
    model.eval().half()
    report = {"parameters": sum(p.numel() for p in model.parameters()), "steps": steps}
    report["tokens"] = steps * arguments.batch * CONTEXT
    if arguments.heldout:
        report |= judge(model, token_ids(tokenizer, read_text(arguments.heldout)))
    save(model, tokenizer, arguments.out)
    print(json.dumps(report))


main()
