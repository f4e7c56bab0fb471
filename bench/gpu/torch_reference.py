#!/usr/bin/env python3
"""PyTorch on the shapes that gpu_bench and gpu_steps measure: torch_reference.py --json FILE [--only sdpa|generate]

scaled_dot_product_attention on contiguous keys and values (it has no pages), and, where transformers is there, greedy
generation of a randomly initialised Llama of the same shape. Names are those of gpu_bench, so that rows can be put
beside each other. What is not installed is said and left out.
"""

import argparse
import json
import statistics
import sys
import time

L2_FLUSH_BYTES = 256 << 20


def import_or_none(name):
    try:
        return __import__(name)
    except Exception as error:  # a broken installation is told as much as a missing one
        print(f"{name}: not usable here: {error}")
        return None


def measure(torch, work, repetitions=20):
    """Seconds of each repetition, by the device's clock, with a cold L2."""
    flush = torch.empty(L2_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(3):
        work()
    times = []
    for _ in range(repetitions):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return times


def row(name, times, amount, unit):
    median = statistics.median(times)
    result = {"name": name, "seconds": {"median": median, "least": min(times), "most": max(times)}, unit: amount / median}
    print(f"  {name:<48} {median * 1e6:10.1f} us {amount / median / 1e12:8.2f} {'TB/s' if unit.startswith('bytes') else 'TFLOP/s'}")
    return result


def sdpa(torch):
    attention = torch.nn.functional.scaled_dot_product_attention
    rows = []

    def tensors(batch, heads, tokens, dim):
        return torch.randn(batch, heads, tokens, dim, dtype=torch.bfloat16, device="cuda")

    def grouped(q, k, v, causal):
        try:
            return attention(q, k, v, is_causal=causal, enable_gqa=True)
        except TypeError:  # older than 2.5: heads repeated, as their users do
            group = q.shape[1] // k.shape[1]
            return attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=causal)

    kv_heads, group = 8, 4
    for dim in (128, 64):
        for context in (1024, 4096):
            for batch in (1, 32, 256):
                if batch * context > 1 << 20:
                    continue
                q, k, v = tensors(batch, kv_heads * group, 1, dim), tensors(batch, kv_heads, context, dim), tensors(batch, kv_heads, context, dim)
                name = f"decode/d{dim}/bf16/gqa{group}/batch{batch}/ctx{context}"
                rows.append(row(name, measure(torch, lambda: grouped(q, k, v, False)), 2 * k.numel() * 2, "bytes_per_second"))
                del q, k, v
        for context in (1024, 4096, 16384):
            batch = 16384 // context
            q, k, v = (tensors(batch, heads, context, dim) for heads in (kv_heads * group, kv_heads, kv_heads))
            flops = batch * 2 * 2 * kv_heads * group * dim * context * (context + 1) / 2
            name = f"prefill/d{dim}/bf16/gqa{group}/batch{batch}/ctx{context}"
            rows.append(row(name, measure(torch, lambda: grouped(q, k, v, True)), flops, "flops_per_second"))
            del q, k, v
    return rows


SHAPES = {
    "smollm2-135m": dict(num_hidden_layers=30, hidden_size=576, intermediate_size=1536, num_attention_heads=9,
                         num_key_value_heads=3, vocab_size=49152, tie_word_embeddings=True),
    "llama-3-8b": dict(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                       num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False),
}


def generate(torch, prompt_tokens=448, output_tokens=32):
    transformers = import_or_none("transformers")
    if transformers is None:
        return []
    rows = []
    for name, shape in SHAPES.items():
        config = transformers.LlamaConfig(max_position_embeddings=8192, **shape)
        with torch.device("cuda"):
            torch.set_default_dtype(torch.bfloat16)
            model = transformers.LlamaForCausalLM(config).eval()
            torch.set_default_dtype(torch.float32)
        for streams in (1, 32, 256):
            ids = torch.randint(0, shape["vocab_size"], (streams, prompt_tokens), device="cuda")

            def run(tokens):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                               do_sample=False, pad_token_id=0)
                torch.cuda.synchronize()
                return time.perf_counter() - begin

            run(2)
            seconds = (run(output_tokens) - run(1)) / (output_tokens - 1)
            rows.append({"shape": name, "streams": streams, "step_seconds": seconds, "tokens_per_second": streams / seconds})
            print(f"  generate {name:<14} {streams:4} streams {seconds * 1e3:9.3f} ms a step {streams / seconds:10.0f} tokens/s")
        del model
        torch.cuda.empty_cache()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True)
    parser.add_argument("--only", choices=("sdpa", "generate"))
    options = parser.parse_args()
    torch = import_or_none("torch")
    if torch is None or not torch.cuda.is_available():
        print("no PyTorch with a CUDA device: nothing to compare with")
        return 3
    report = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    with torch.inference_mode():
        if options.only != "generate":
            report["sdpa"] = sdpa(torch)
        if options.only != "sdpa":
            report["generate"] = generate(torch)
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
