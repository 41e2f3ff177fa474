"""Talks to a server through the official client: client.py URL check|long."""
import sys

from openai import OpenAI

url, what = sys.argv[1:]
client = OpenAI(base_url=url + "/v1", api_key="none", timeout=60, max_retries=0)
model = client.models.list().data[0].id
ask = dict(model=model, temperature=0, messages=[{"role": "user", "content": "What is the capital of France? é模"}])


def streamed(**more):
    text = ""
    for chunk in client.chat.completions.create(stream=True, **(ask | more)):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            yield text, chunk.choices[0].finish_reason


if what == "check":
    whole = client.chat.completions.create(max_tokens=12, **ask)
    text = whole.choices[0].message.content
    assert "Paris" in text, text
    assert whole.usage.prompt_tokens == 40, whole.usage
    *_, (joined, finish) = streamed(max_tokens=12)
    assert joined == text, (joined, text)
    assert finish == whole.choices[0].finish_reason
    print("all answers are right")
else:
    long = dict(max_tokens=200, messages=[{"role": "user", "content": "Tell me a long story."}])
    for i, (text, finish) in enumerate(streamed(**long)):
        if i == 2:
            print("begun", flush=True)
    assert len(text) > 200, text
    print("ended with", finish)
