"""Answers: unary and streamed, sampled and greedy, and everything that may come with them."""

import concurrent.futures

import pytest

from berth.v1 import inference_pb2 as pb
from berth_server import PATIENCE_S, endless, greedy, joined

PROMPT = "Once upon a time"


def test_a_stream_says_the_same_as_the_unary_call(server):
    unary = server.generate(greedy(PROMPT))
    messages = server.stream(greedy(PROMPT))
    assert unary.choices[0].text
    assert joined(messages) == unary.choices[0].text
    kinds = [message.WhichOneof("event") for message in messages]
    assert kinds[0] == "admitted"
    assert kinds[-2:] == ["finished", "completed"]
    assert set(kinds[1:-2]) == {"tokens"}
    assert messages[-2].finished.finish_reason == unary.choices[0].finish_reason
    assert messages[-1].completed.usage.output_tokens == unary.usage.output_tokens


def test_text_and_its_token_ids_are_one_prompt(server):
    by_ids = greedy(PROMPT)
    by_ids.token_ids.ids.extend(server.tokenize(PROMPT))
    assert server.generate(by_ids).choices == server.generate(greedy(PROMPT)).choices


def test_an_answer_is_the_same_however_many_ask(server):
    alone = server.generate(greedy(PROMPT)).choices[0].text
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.generate(greedy(PROMPT)).choices[0].text, range(8)))
    assert answers == [alone] * 8


def test_many_run_at_once(server):
    request = greedy(PROMPT, 100, ignore_eos=True)
    streams = [server.stub.GenerateStream(request, timeout=PATIENCE_S) for _ in range(4)]
    # Each has started before any has ended.
    messages = [[next(stream)] for stream in streams]
    assert all(first[0].WhichOneof("event") == "admitted" for first in messages)
    texts = set()
    for first, stream in zip(messages, streams):
        first.extend(stream)
        assert first[-1].completed.usage.output_tokens == 100
        texts.add(joined(first))
    assert len(texts) == 1


def test_several_choices_are_drawn_apart_and_repeat_with_the_seed(server):
    request = greedy(PROMPT, 24, ignore_eos=True)
    request.sampling.CopyFrom(pb.Sampling(temperature=1.2, seed=11, n=3))
    request.output.logprobs = 0
    request.output.prompt_logprobs = 0
    response = server.generate(request)
    assert [choice.index for choice in response.choices] == [0, 1, 2]
    assert len({choice.text for choice in response.choices}) == 3
    assert all(len(choice.logprobs) == 24 for choice in response.choices)
    assert len(response.prompt_logprobs) == len(server.tokenize(PROMPT)) - 1
    assert response.usage.output_tokens == 3 * 24
    messages = server.stream(request)
    for choice in response.choices:
        streamed = [d.text for message in messages for d in message.tokens.deltas if d.index == choice.index]
        assert "".join(streamed) == choice.text
    assert sum(message.HasField("finished") for message in messages) == 3
    # The first choice does not depend on how many others there are.
    request.sampling.n = 1
    assert server.generate(request).choices[0].text == response.choices[0].text


def test_a_prompt_that_was_computed_before_is_found_and_gives_the_same_answer(server):
    prompt = "The harbour master wrote down every ship that came in that day, and every berth that it took. " * 3
    if len(server.tokenize(prompt)) + 20 > server.model_info().max_context_tokens:
        pytest.skip("the model's context is too short")
    first = server.generate(greedy(prompt, 20))
    again = server.generate(greedy(prompt, 20))
    assert again.usage.cached_tokens > 0
    assert again.usage.cached_tokens % server.model_info().block_tokens == 0
    assert again.choices[0].text == first.choices[0].text
    assert again.usage.reserved_blocks == first.usage.reserved_blocks


def test_usage_is_complete_and_in_the_trailer_too(server):
    response, call = server.stub.Generate.with_call(greedy(PROMPT, 20, ignore_eos=True), timeout=PATIENCE_S)
    usage = response.usage
    assert usage.prompt_tokens == len(server.tokenize(PROMPT))
    assert usage.output_tokens == 20
    estimate = server.stub.EstimateDemand(pb.EstimateDemandRequest(request=greedy(PROMPT, 20)), timeout=PATIENCE_S)
    assert usage.reserved_blocks == estimate.worst_blocks
    assert 0 < usage.peak_blocks <= usage.reserved_blocks
    assert 0 < usage.held_block_seconds <= usage.kv_block_seconds
    assert usage.accelerator_seconds > 0
    for time in (usage.prefill_time, usage.decode_time, usage.time_to_first_token):
        assert time.ToNanoseconds() > 0
    trailers = dict(call.trailing_metadata())
    assert pb.Usage.FromString(trailers["berth-usage-bin"]) == usage


def test_what_was_admitted_is_told(server):
    request = greedy(PROMPT, 5)
    request.request_id = "my own id"
    admitted = server.stream(request)[0].admitted
    assert admitted.service_class == "interactive"
    assert admitted.request_id == "my own id"
    assert admitted.max_output_tokens == 5
    assert admitted.prompt_tokens == len(server.tokenize(PROMPT))
    assert admitted.reserved_blocks >= 1


def test_an_omitted_output_length_is_the_servers_default(server):
    request = pb.GenerateRequest(text=PROMPT)
    stream = server.stub.GenerateStream(request, timeout=PATIENCE_S)
    info = server.model_info()
    room = info.max_context_tokens - len(server.tokenize(PROMPT))
    assert next(stream).admitted.max_output_tokens == min(info.default_output_tokens, room)
    stream.cancel()


def test_token_ids_come_where_asked_for(server):
    assert not server.generate(greedy(PROMPT)).choices[0].token_ids
    request = greedy(PROMPT, ignore_eos=True)
    request.output.return_token_ids = True
    choice = server.generate(request).choices[0]
    assert len(choice.token_ids) == 24
    streamed = server.stream(request)
    ids = [i for message in streamed for delta in message.tokens.deltas for i in delta.token_ids]
    assert ids == list(choice.token_ids)


def test_echo_puts_the_prompt_in_front(server):
    request = greedy(PROMPT, ignore_eos=True)
    request.output.echo_prompt = True
    request.output.return_token_ids = True
    choice = server.generate(request).choices[0]
    assert choice.text.startswith(PROMPT)
    assert choice.text == PROMPT + server.generate(greedy(PROMPT, ignore_eos=True)).choices[0].text
    assert joined(server.stream(request)) == choice.text
    assert server.detokenize(server.tokenize(PROMPT) + list(choice.token_ids)) == choice.text


# --- Sampling


def sampled(seed: int | None = None, **sampling) -> pb.GenerateRequest:
    request = greedy(PROMPT, 32, ignore_eos=True)
    request.sampling.CopyFrom(pb.Sampling(temperature=1.2, **sampling))
    request.output.return_token_ids = True
    if seed is not None:
        request.sampling.seed = seed
    return request


def test_a_seed_repeats_its_tokens_and_another_does_not(server):
    first, again, other = (server.generate(sampled(seed)).choices[0].token_ids for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_seed_that_the_server_drew_is_told_and_repeats(server):
    messages = server.stream(sampled())
    again = server.generate(sampled(messages[0].admitted.seed)).choices[0]
    assert joined(messages) == again.text
    assert server.stream(sampled())[0].admitted.seed != messages[0].admitted.seed


def test_the_largest_seed_arrives_whole(server):
    assert server.stream(sampled(2**64 - 1))[0].admitted.seed == 2**64 - 1


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
def test_the_narrowest_draw_is_greedy(server, narrow):
    assert server.generate(sampled(3, **narrow)).choices[0].text == server.generate(
        greedy(PROMPT, 32, ignore_eos=True)).choices[0].text


def test_logit_bias_decides(server):
    wanted = server.tokenize("a", add_bos=False)[0]
    request = sampled(5)
    request.sampling.temperature = 0
    request.sampling.logit_bias[wanted] = 100
    assert set(server.generate(request).choices[0].token_ids) == {wanted}


# --- Stopping


def test_the_output_length_ends_a_choice(server):
    response = server.generate(greedy(PROMPT, 3, ignore_eos=True))
    assert response.choices[0].finish_reason == pb.FINISH_REASON_LENGTH
    assert not response.choices[0].HasField("stop_match")
    assert response.usage.output_tokens == 3


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_ends_the_text_where_it_appears(server, include):
    whole = server.generate(greedy(PROMPT, ignore_eos=True)).choices[0].text
    stop = whole[len(whole) // 2:][:4]
    request = greedy(PROMPT, ignore_eos=True, stop_strings=["never to be seen", stop], include_stop_text=include)
    choice = server.generate(request).choices[0]
    assert choice.finish_reason == pb.FINISH_REASON_STOP_STRING
    assert choice.stop_match.stop_string == stop
    assert choice.text == whole[:whole.index(stop)] + (stop if include else "")
    assert joined(server.stream(request)) == choice.text


def test_a_stop_token_ends_the_choice_and_belongs_to_it(server):
    request = greedy(PROMPT, ignore_eos=True)
    request.output.return_token_ids = True
    ids = list(server.generate(request).choices[0].token_ids)
    stop = ids[5]
    request.stopping.stop_token_ids.append(stop)
    response = server.generate(request)
    choice = response.choices[0]
    assert choice.finish_reason == pb.FINISH_REASON_STOP_TOKEN
    assert choice.stop_match.stop_token_id == stop
    assert list(choice.token_ids) == ids[:ids.index(stop) + 1]
    assert response.usage.output_tokens == len(choice.token_ids)


def test_no_stop_token_comes_before_the_least_length(server):
    request = greedy(PROMPT, ignore_eos=True)
    request.output.return_token_ids = True
    stop = server.generate(request).choices[0].token_ids[0]
    request.stopping.stop_token_ids.append(stop)
    assert server.generate(request).usage.output_tokens == 1
    request.stopping.min_output_tokens = 6
    response = server.generate(request)
    assert response.usage.output_tokens >= 6
    assert stop not in response.choices[0].token_ids[:6]


# --- Log-probabilities


def test_logprobs_tell_the_chosen_token_and_the_most_likely_ones(server):
    request = greedy(PROMPT, 8, ignore_eos=True)
    request.output.logprobs = 5
    request.output.return_token_ids = True
    choice = server.generate(request).choices[0]
    assert [logprob.token_id for logprob in choice.logprobs] == list(choice.token_ids)
    for logprob in choice.logprobs:
        assert len(logprob.top) == 5
        values = [top.logprob for top in logprob.top]
        assert values == sorted(values, reverse=True)
        assert all(value <= 0 for value in values)
        # Greedy takes the most likely one.
        assert (logprob.top[0].token_id, logprob.top[0].logprob) == (logprob.token_id, logprob.logprob)
    assert b"".join(logprob.piece for logprob in choice.logprobs).decode(errors="replace") == choice.text


def test_zero_logprobs_are_the_chosen_tokens_alone(server):
    request = greedy(PROMPT, 4, ignore_eos=True)
    request.output.logprobs = 0
    messages = server.stream(request)
    logprobs = [entry for message in messages for delta in message.tokens.deltas for entry in delta.logprobs]
    assert len(logprobs) == 4
    assert all(not entry.top for entry in logprobs)


def test_prompt_logprobs_cover_the_prompt_from_its_second_token(server):
    request = greedy(PROMPT, 1)
    request.output.prompt_logprobs = 2
    ids = server.tokenize(PROMPT)
    response = server.generate(request)
    assert [entry.token_id for entry in response.prompt_logprobs] == ids[1:]
    assert all(len(entry.top) == 2 and entry.logprob <= entry.top[0].logprob for entry in response.prompt_logprobs)
    assert server.stream(request)[-1].completed.prompt_logprobs == response.prompt_logprobs


# --- Long ones


def test_a_cancelled_stream_gives_its_place_and_blocks_back(server):
    # More than the queue and the pool hold, if any of them stayed.
    for _ in range(70):
        stream = server.stub.GenerateStream(endless(server), timeout=PATIENCE_S)
        assert next(stream).WhichOneof("event") == "admitted"
        stream.cancel()
    assert server.generate(greedy(PROMPT, 4)).usage.output_tokens > 0


def test_a_queued_call_that_is_cancelled_never_runs(server):
    running = server.stub.GenerateStream(endless(server), timeout=PATIENCE_S)
    assert next(running).WhichOneof("event") == "admitted"
    waiting = [server.stub.Generate.future(endless(server), timeout=PATIENCE_S) for _ in range(8)]
    for call in waiting:
        call.cancel()
    running.cancel()
    assert server.generate_when_free(greedy(PROMPT, 4)).usage.output_tokens > 0
