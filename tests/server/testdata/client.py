"""Uses the official Python client, unchanged, against two servers: the second one's model makes embeddings, of the number of tokens and -0.5.

The models are the fake of package servertest. Every check that fails ends the program with a traceback.
"""

import sys

import openai


def chat(client):
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    answer = client.chat.completions.create(
        model="fake-1B", messages=messages, max_completion_tokens=50, temperature=0.5, top_p=0.9, seed=1, n=2, stop=["END"],
        frequency_penalty=0.1, presence_penalty=0.1, logit_bias={"5": -100}, logprobs=True, top_logprobs=2, user="u",
        metadata={"a": "b"}, extra_body={"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "chat_template_kwargs": {"x": 1}},
    )
    assert [c.message.content for c in answer.choices] == ["Héllo <b>世界</b>"] * 2, answer
    assert answer.choices[0].finish_reason == "stop"
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0

    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(
        model="default", messages=messages, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert (text, finish) == ("Héllo <b>世界</b>", "stop"), text
    assert usage.completion_tokens == answer.usage.completion_tokens / 2


def reasoning(client):
    answer = client.chat.completions.create(model="", messages=[{"role": "user", "content": "think"}], reasoning_effort="low")
    assert answer.choices[0].message.content == "Yes."
    assert answer.choices[0].message.reasoning_content == "Let me see."


def tools(client):
    messages = [{"role": "user", "content": "weather?"}]
    definitions = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
    answer = client.chat.completions.create(model="default", messages=messages, tools=definitions, tool_choice="auto")
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "I look."
    assert message.tool_calls[0].function.arguments == '{"city":"Paris"}'

    # What the client's own helper makes of the stream.
    with client.chat.completions.stream(model="default", messages=messages, tools=definitions) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"

    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}]
    answer = client.chat.completions.create(model="default", messages=messages)
    assert answer.choices[0].message.content == "Héllo <b>世界</b>"


def completions(client):
    answer = client.completions.create(model="default", prompt=["a", "b"], max_tokens=3, echo=True)
    assert [c.text for c in answer.choices] == ["aHé", "bHé"], answer
    assert answer.choices[0].finish_reason == "length"
    text = "".join(c.choices[0].text for c in client.completions.create(model="default", prompt=[97, 98], stream=True))
    assert text.startswith("Hé"), text


def responses(client):
    first = client.responses.create(model="default", input="think", instructions="Be brief.")
    assert first.output_text == "Yes."
    assert first.output[0].type == "reasoning"
    second = client.responses.create(model="default", input=[{"role": "user", "content": "hi"}], previous_response_id=first.id)
    assert second.output_text == "Yes."  # the fake thinks wherever the conversation says so: it was carried on
    assert client.responses.retrieve(first.id).output_text == "Yes."
    assert client.responses.input_items.list(first.id).data[0].content[0].text == "think"

    with client.responses.stream(model="default", input="hi") as stream:
        deltas = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert deltas == final.output_text == "Héllo <b>世界</b>", (deltas, final)
    client.responses.delete(first.id)
    expect(openai.NotFoundError, lambda: client.responses.retrieve(first.id))


def models(client):
    assert [m.id for m in client.models.list()] == ["fake-1B"]
    assert client.models.retrieve("fake-1B").object == "model"


def embeddings(client):
    answer = client.embeddings.create(model="default", input=["x", "yz"])
    assert [e.embedding for e in answer.data] == [[1, -0.5], [2, -0.5]], answer  # asked for and sent in base64
    assert answer.usage.prompt_tokens == 3
    assert client.embeddings.create(model="default", input=[97, 98], encoding_format="float").data[0].embedding == [2, -0.5]


def errors(client, address):
    hi = [{"role": "user", "content": "hi"}]
    error = expect(openai.BadRequestError, lambda: client.chat.completions.create(model="default", messages=hi, temperature=3))
    assert error.param == "temperature" and error.type == "invalid_request_error", error
    expect(openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-5", messages=hi))
    expect(openai.BadRequestError, lambda: client.embeddings.create(model="default", input="x"))
    format = {"type": "json_object"}
    error = expect(openai.BadRequestError, lambda: client.chat.completions.create(model="default", messages=hi, response_format=format))
    assert error.param == "response_format", error
    stranger = openai.OpenAI(base_url=address, api_key="wrong", max_retries=0)
    expect(openai.AuthenticationError, lambda: stranger.models.list())


def expect(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def main():
    address = sys.argv[1] + "/v1"
    client = openai.OpenAI(base_url=address, api_key="key", max_retries=0, timeout=20)
    for check in (chat, reasoning, tools, completions, responses, models):
        check(client)
    errors(client, address)
    embeddings(openai.OpenAI(base_url=sys.argv[2] + "/v1", api_key="none", max_retries=0, timeout=20))
    print("all answers are right")


main()
