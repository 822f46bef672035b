"""Rivals of the shape benchmark: transformers with all weights on the GPU, and accelerate's offloading.

    python3 bench/rivals.py --checkpoint DIR --rival transformers
    python3 bench/rivals.py --checkpoint DIR --rival accelerate-offload --device-bytes N [--loop forward] [--threads N]

DIR is made by scripts/make-checkpoint.mjs. Loads the model in FP16, prints {"ready": ...}, then answers every line
{"promptTokens": P, "newTokens": N} of standard input with one line {"prefillMs": ..., "stepMs": [...],
"peakDeviceBytes": ...}. Tokens are chosen greedily by the library's `generate` (--loop forward: by a bare loop around
the model), and the GPU is waited for after each. The offload may hold as many bytes on the GPU at its peak as --device-bytes says: what
weights may take is lowered until the peak of a trial run keeps it.
"""

import argparse
import gc
import json
import sys
import time


def say(answer):
    print(json.dumps(answer), flush=True)


def prompt_ids(count, vocabulary):
    most = min(50_000, vocabulary)
    return [(index * 7919 + 11) % most for index in range(count)]


def load_on_gpu(transformers, torch, checkpoint):
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, **dtype_option(transformers, torch))
    return model.to("cuda").eval()


def load_offloaded(transformers, torch, checkpoint, device_bytes):
    """Weights on the GPU up to a limit, the rest in host memory; accelerate brings each module when it is called."""
    limit = device_bytes
    for _ in range(6):
        gc.collect()  # hooks and modules hold one another
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint,
            device_map="auto",
            max_memory={0: int(limit), "cpu": 1 << 40},
            **dtype_option(transformers, torch),
        ).eval()
        run(torch, model, prompt_ids(512, model.config.vocab_size), 2)
        peak = torch.cuda.max_memory_allocated()
        if peak <= device_bytes:
            return model, limit
        del model
        limit -= (peak - device_bytes) + (32 << 20)
        if limit <= 0:
            break
    raise RuntimeError(f"no limit on weights keeps the peak below {device_bytes} bytes")


def dtype_option(transformers, torch):
    """The option is named `dtype` from transformers 4.56 on."""
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": torch.float16}


def run(torch, model, ids, new_tokens, loop="generate"):
    """Milliseconds until the first token, and of each token behind it."""
    run_loop = generate if loop == "generate" else forward
    with torch.inference_mode():
        torch.cuda.synchronize()
        began = time.perf_counter()
        ends = run_loop(torch, model, torch.tensor([ids], device="cuda"), new_tokens)
    return (ends[0] - began) * 1e3, [(b - a) * 1e3 for a, b in zip(ends, ends[1:])]


def generate(torch, model, ids, new_tokens):
    """The library's own loop; a criterion that never stops it takes the times."""
    ends = []

    def clock(input_ids, scores, **_):
        torch.cuda.synchronize()
        ends.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=new_tokens,
        max_new_tokens=new_tokens,
        pad_token_id=1,
        stopping_criteria=[clock],
    )
    return ends


def forward(torch, model, ids, new_tokens):
    """A loop with nothing in it but the model."""
    output = model(ids, use_cache=True, **last_logits(model))
    ends = []
    for index in range(new_tokens):
        token = output.logits[:, -1].argmax(-1, keepdim=True)
        token.item()
        ends.append(time.perf_counter())
        if index + 1 < new_tokens:
            output = model(token, past_key_values=output.past_key_values, use_cache=True)
    return ends


def last_logits(model):
    """Where the model's forward can leave other rows out (`logits_to_keep`; before that `num_logits_to_keep`)."""
    import inspect

    known = inspect.signature(model.forward).parameters
    for name in ("logits_to_keep", "num_logits_to_keep"):
        if name in known:
            return {name: 1}
    return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--rival", required=True, choices=["transformers", "accelerate-offload"])
    parser.add_argument("--device-bytes", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--loop", choices=["generate", "forward"], default="generate")
    given = parser.parse_args()
    try:
        import torch
        import transformers

        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
        if given.threads > 0:
            torch.set_num_threads(given.threads)
        versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
        if given.rival == "transformers":
            model = load_on_gpu(transformers, torch, given.checkpoint)
        else:
            import accelerate

            model, limit = load_offloaded(transformers, torch, given.checkpoint, given.device_bytes)
            versions += f", accelerate {accelerate.__version__}, {limit} bytes of weights on the GPU"
    except Exception as error:  # whatever is missing is told to who asked
        say({"error": f"{type(error).__name__}: {error}"})
        return 1
    say({"ready": versions})
    for line in sys.stdin:
        asked = json.loads(line)
        ids = prompt_ids(asked["promptTokens"], model.config.vocab_size)
        torch.cuda.reset_peak_memory_stats()
        prefill, steps = run(torch, model, ids, asked["newTokens"], given.loop)
        peak = torch.cuda.max_memory_allocated()
        say({"prefillMs": prefill, "stepMs": steps, "peakDeviceBytes": peak})
    return 0


if __name__ == "__main__":
    sys.exit(main())
