"""berth generate: the text, the machine-readable answer, and how it ends."""

import re
import signal
import unittest
from pathlib import Path

from cli_support import CliTest, berth, shared, smollm2, start, stories

ONCE = ("--prompt", "Once upon a time")


def greedy_texts():
    """(prompt, text with the prompt in front) from the reference's file."""
    parts = re.split(r"^### prompt=\[(.*)\] t=0 n=128\n", Path(shared("models/stories260K-greedy.txt")).read_text(),
                     flags=re.MULTILINE)
    return list(zip(parts[1::2], (text[:-1] for text in parts[2::2])))


class GreedyText(CliTest):
    def check(self, variant, *flags):
        model = stories(variant)
        self.assertEqual(len(greedy_texts()), 4)
        for prompt, want in greedy_texts():
            with self.subTest(prompt=prompt):
                # The reference counts its 128 tokens behind the first one: one more than the model's context holds.
                prompt_tokens = len(self.ok("tokenize", "--model", model, "--add-bos", "--text", prompt).split())
                got = self.ok("generate", "--model", model, "--prompt", prompt, "--echo", "--max-context", 129,
                              "--max-tokens", 129 - prompt_tokens, *flags)
                self.assertEqual(got, want + "\n")

    def test_float32_weights_give_the_references_text(self):
        self.check("f32")

    def test_float32_weights_in_float32_give_the_references_text(self):
        self.check("f32", "--compute", "float32")

    def test_float16_weights_give_the_references_text(self):
        self.check("f16")

    def test_float16_weights_in_float32_give_the_references_text(self):
        self.check("f16", "--compute", "float32")

    def test_the_default_model_answers_without_a_model_flag(self):
        smollm2()
        text = self.ok("generate", "--prompt", "The capital of France is", "--max-tokens", 4)
        self.assertEqual(text.split(), ["Paris."])

    def test_thread_count_and_block_size_change_nothing(self):
        flags = ("generate", "--model", stories("q4_k_m"), *ONCE, "--max-tokens", 40)
        one = self.ok(*flags, "--threads", 1)
        self.assertEqual(one, self.ok(*flags, "--threads", 3))
        self.assertEqual(one, self.ok(*flags, "--block-tokens", 4))


class Prompts(CliTest):
    def generate(self, *args, **options):
        return self.ok_json("generate", "--model", stories(), "--max-tokens", 8, *args, **options)

    def test_text_ids_file_and_standard_input_are_the_same_prompt(self):
        want = self.generate(*ONCE)
        self.assertEqual(want["prompt_ids"], [1, 403, 407, 261, 378])
        self.assertEqual(self.generate("--prompt-ids", "1,403, 407 261,378")["text"], want["text"])
        self.assertEqual(self.generate("--prompt-file", "-", stdin="Once upon a time")["text"], want["text"])

    def test_an_empty_prompt_is_the_begin_of_text_token(self):
        self.assertEqual(self.generate("--prompt", "")["prompt_ids"], [1])
        self.assertEqual(self.generate("--prompt=")["prompt_ids"], [1])

    def test_a_prompt_may_look_like_an_option_or_a_list(self):
        for prompt in ("--max-tokens", "-n", "[a,b]", "{}", "%s", "a=b"):
            with self.subTest(prompt=prompt):
                self.assertTrue(self.generate("--prompt", prompt, "--echo")["text"].startswith(prompt))

    def test_special_tokens_are_text_unless_asked_for(self):
        plain = self.ok_json("generate", "--model", smollm2(), "--prompt", "<|im_end|>", "--max-tokens", 1)
        self.assertGreater(len(plain["prompt_ids"]), 1)
        special = self.ok_json("generate", "--model", smollm2(), "--prompt", "<|im_end|>", "--parse-special",
                               "--max-tokens", 1)
        self.assertEqual(special["prompt_ids"], [2])


class Answer(CliTest):
    def generate(self, *args):
        return self.ok_json("generate", "--model", stories(), *ONCE, *args)

    def test_the_object_has_what_the_help_promises(self):
        answer = self.generate("--max-tokens", 12, "--logprobs", 2, "--prompt-logprobs", 1, "--seed", 7)
        self.assertEqual(list(answer), ["prompt_ids", "output_ids", "text", "finish_reason", "stop_match", "logprobs", "seed",
                                        "prompt_logprobs", "usage", "timing"])
        self.assertEqual(len(answer["output_ids"]), 12)
        self.assertEqual((answer["finish_reason"], answer["stop_match"], answer["seed"]), ("length", None, 7))
        self.assertEqual([token["id"] for token in answer["logprobs"]], answer["output_ids"])
        for token in answer["logprobs"]:
            self.assertEqual([top["id"] for top in token["top"]][0], token["id"], "greedy takes the most likely")
            self.assertEqual(len(token["top"]), 2)
            self.assertLessEqual(token["logprob"], 0)
        self.assertEqual([token["id"] for token in answer["prompt_logprobs"]], answer["prompt_ids"][1:])
        self.assertEqual("".join(token["piece"] for token in answer["logprobs"]), answer["text"])
        # 5 + 12 - 1 stored tokens are one block of 16.
        usage = answer["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["output_tokens"], usage["reserved_blocks"], usage["peak_blocks"]),
                         (5, 12, 1, 1))
        self.assertGreater(answer["timing"]["time_to_first_token_seconds"], 0)
        self.assertGreater(answer["timing"]["decode_tokens_per_second"], 0)

    def test_log_probabilities_appear_only_where_asked_for(self):
        self.assertFalse({"logprobs", "prompt_logprobs"} & set(self.generate("--max-tokens", 1)))

    def test_one_more_token_than_a_block_holds_reserves_two(self):
        self.assertEqual(self.generate("--max-tokens", 13)["usage"]["reserved_blocks"], 2)

    def test_several_choices_are_drawn_apart_and_the_first_is_the_one_alone(self):
        flags = ("--max-tokens", 20, "--temperature", 1, "--seed", 5, "--logprobs", 0)
        several = self.generate(*flags, "-n", 3)
        self.assertEqual(list(several), ["prompt_ids", "choices", "seed", "usage", "timing"])
        self.assertEqual([choice["index"] for choice in several["choices"]], [0, 1, 2])
        self.assertEqual(len({choice["text"] for choice in several["choices"]}), 3)
        self.assertEqual(several["usage"]["output_tokens"], sum(len(choice["output_ids"]) for choice in several["choices"]))
        alone = self.generate(*flags)
        for key in ("output_ids", "text", "finish_reason", "stop_match", "logprobs"):
            self.assertEqual(several["choices"][0][key], alone[key])

    def test_several_texts_are_told_apart(self):
        text = self.ok("generate", "--model", stories(), *ONCE, "--max-tokens", 8, "--temperature", 1, "--seed", 5, "-n", 2)
        parts = re.split(r"^--- (\d) ---\n", text, flags=re.MULTILINE)
        self.assertEqual(parts[::2][0], "")
        self.assertEqual(parts[1::2], ["1", "2"])
        self.assertNotEqual(parts[2], parts[4])

    def test_more_choices_than_run_at_once_are_refused(self):
        done = berth("generate", "--model", stories(), *ONCE, "-n", 65)
        self.fails(done, 2, "berth generate", "64")
        self.ok("generate", "--model", stories(), *ONCE, "-n", 65, "--max-sequences", 65, "--max-tokens", 2)

    def test_the_same_seed_draws_the_same_tokens(self):
        def draw(seed):
            return self.generate("--max-tokens", 30, "--temperature", 1, "--seed", seed)["output_ids"]
        self.assertEqual(draw(2**64 - 1), draw(2**64 - 1))
        self.assertGreater(len({tuple(draw(seed)) for seed in range(4)}), 1)

    def test_a_left_out_seed_is_told_and_repeats_the_draw(self):
        first = self.generate("--max-tokens", 20, "--temperature", 1)
        again = self.generate("--max-tokens", 20, "--temperature", 1, "--seed", first["seed"])
        self.assertEqual(first["output_ids"], again["output_ids"])

    def test_a_stop_string_ends_the_text_before_it(self):
        answer = self.generate("--max-tokens", 60, "--stop", "nowhere", "--stop", "Lily")
        self.assertEqual((answer["finish_reason"], answer["stop_match"]), ("stop_string", "Lily"))
        self.assertTrue(answer["text"].endswith("named "), answer["text"])
        kept = self.generate("--max-tokens", 60, "--stop", "Lily", "--include-stop")
        self.assertTrue(kept["text"].endswith("named Lily"), kept["text"])

    def test_a_stop_token_ends_the_output_and_stays_in_the_ids(self):
        answer = self.generate("--max-tokens", 60, "--stop-token-id", 286)
        self.assertEqual((answer["finish_reason"], answer["stop_match"]), ("stop_token", 286))
        self.assertEqual(answer["output_ids"][-1], 286)
        longer = self.generate("--max-tokens", 60, "--stop-token-id", 286, "--min-tokens", 10)
        self.assertGreaterEqual(len(longer["output_ids"]), 10)
        self.assertNotIn(286, longer["output_ids"][:9])

    def test_bias_bans_a_token(self):
        self.assertIn(432, self.generate("--max-tokens", 10)["output_ids"])
        self.assertNotIn(432, self.generate("--max-tokens", 10, "--logit-bias", "432=-100")["output_ids"])

    def test_every_sampling_flag_is_taken(self):
        answer = self.generate("--max-tokens", 5, "--temperature", 0.7, "--top-k", 40, "--top-p", 0.9, "--min-p", 0.05,
                               "--seed", 3, "--repetition-penalty", 1.1, "--presence-penalty", -0.5,
                               "--frequency-penalty", 0.5, "--ignore-eos", "--threads", 1, "--kv-memory", "1MiB",
                               "--kv-dtype", "float32", "--max-context", 64)
        self.assertEqual(len(answer["output_ids"]), 5)

    def test_a_left_out_length_is_cut_to_what_the_context_leaves(self):
        answer = self.generate("--ignore-eos", "--max-context", 20)
        self.assertEqual(len(answer["output_ids"]), 15)


class Ending(CliTest):
    def test_figures_go_to_standard_error_in_one_line(self):
        done = berth("generate", "--model", stories(), *ONCE, "--max-tokens", 8)
        figures = done.stderr.decode()
        self.assertEqual(figures.count("\n"), 1, figures)
        for part in ("5 prompt tokens", "8 output tokens (length)", "first token", "prefill", "decode", "KV blocks"):
            self.assertIn(part, figures)

    def test_an_interrupt_keeps_the_text_so_far(self):
        with start("generate", "--model", smollm2(), "--prompt", "Once", "--ignore-eos", "--max-tokens", 5000) as running:
            first = running.stdout.read(1)
            running.send_signal(signal.SIGINT)
            rest, error = running.communicate(timeout=120)
        self.assertEqual(running.returncode, 130)
        self.assertTrue((first + rest).decode().endswith("\n"))
        self.assertIn("(cancelled)", error.decode())

    def test_a_reader_that_leaves_ends_it_quietly(self):
        with start("generate", "--model", smollm2(), "--prompt", "Once", "--ignore-eos", "--max-tokens", 5000) as running:
            running.stdout.read(1)
            running.stdout.close()
            error = running.stderr.read()
        self.assertEqual((running.returncode, error), (0, b""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
