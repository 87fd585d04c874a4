#!/usr/bin/env python3
"""Asks a server with OpenAI's own client and holds its answers to what they should be, for tests.

    openai_client.py BASE MODEL     such as http://127.0.0.1:8080/v1 smollm2-135m
    openai_client.py --place        prints the folder that scripts/setup.sh installs the client into

Prints a line for each thing tried; ends with status 1 at the first that is not as it should be.
"""

import json
import os
import pathlib
import sys


def place() -> pathlib.Path:
    """Below the cache, by version of the client and of Python: compiled packages belong to one."""
    wanted = pathlib.Path(__file__).with_name("openai.txt").read_text()
    version = next(line for line in wanted.splitlines() if line.startswith("openai=="))
    version = version.split("==")[1].split()[0]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = os.environ.get("PIPELINE_CACHE") or os.path.join(home, "pipeline")
    python = "py%d%d" % sys.version_info[:2]
    return pathlib.Path(cache, "python", f"openai-{version}-{python}")


if sys.argv[1:] == ["--place"]:
    print(place())
    sys.exit()

sys.path.insert(0, str(place()))
import openai  # noqa: E402

BASE, MODEL = sys.argv[1:3]
client = openai.OpenAI(base_url=BASE, api_key="none", max_retries=0, timeout=120)
hello = [{"role": "user", "content": "What is the capital of France?"}]


def tried(what: str, good: bool, found: object) -> None:
    print(f"{what}: {'ok' if good else 'WRONG'}", flush=True)
    if not good:
        sys.exit(f"{what}: {found!r}")


def models() -> None:
    found = [model.id for model in client.models.list()]
    tried("models.list", MODEL in found, found)
    tried("models.retrieve", client.models.retrieve(MODEL).id == MODEL, found)


def completions() -> None:
    asked = dict(model=MODEL, prompt="One, two, three,", max_tokens=6, temperature=0)
    whole = client.completions.create(**asked)
    text = whole.choices[0].text
    tried("completions", "four" in text and whole.choices[0].finish_reason == "length", whole)
    tried("completions: usage", whole.usage.completion_tokens == 6, whole.usage)
    pieces = list(client.completions.create(**asked, stream=True))
    said = "".join(piece.choices[0].text for piece in pieces)
    tried("completions: stream", said == text, pieces)
    two = client.completions.create(**{**asked, "prompt": ["One, two,", "a b c"]}, n=2, stop="\n")
    tried("completions: lists", [c.index for c in two.choices] == [0, 1, 2, 3], two)
    own = client.completions.create(**asked, extra_body={"priority": -5, "request_id": "r"})
    tried("completions: own fields", own.id == "cmpl-r" and own.choices[0].text == text, own)


def chat() -> None:
    asked = dict(model=MODEL, messages=hello, max_completion_tokens=12, temperature=0, seed=1)
    whole = client.chat.completions.create(**asked)
    message = whole.choices[0].message
    # What so small a model says to this is no matter here; that it says something is.
    tried("chat", message.role == "assistant" and len(message.content) > 3, whole)
    options = {"include_usage": True}
    pieces = list(client.chat.completions.create(**asked, stream=True, stream_options=options))
    said = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    tried("chat: stream", said == message.content, pieces)
    tried("chat: first piece", pieces[0].choices[0].delta.role == "assistant", pieces[0])
    last = pieces[-1]
    tried("chat: usage", last.usage.total_tokens == whole.usage.total_tokens and not last.choices, last)


def json_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
        "required": ["city", "capital"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema, "strict": True}}
    answer = client.chat.completions.create(
        model=MODEL, messages=hello, response_format=wanted, max_tokens=64, temperature=0
    )
    found = json.loads(answer.choices[0].message.content)
    good = set(found) == {"city", "capital"} and isinstance(found["capital"], bool)
    tried("chat: json_schema", good and isinstance(found["city"], str), found)


def logprobs() -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=hello, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    tokens = answer.choices[0].logprobs.content
    good = len(tokens) == 3 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in tokens)
    tried("chat: logprobs", good, answer)


def errors() -> None:
    def raised(error: type, what: str, call) -> None:
        try:
            found = call()
        except openai.APIStatusError as e:
            tried(what, type(e) is error and e.body["message"] in str(e), e)
        else:
            tried(what, False, found)

    ask = client.chat.completions.create
    raised(openai.NotFoundError, "unknown model", lambda: ask(model="gpt-4", messages=hello))
    wrong = {"extra_body": {"temperature": "warm"}}
    raised(openai.BadRequestError, "wrong type", lambda: ask(model=MODEL, messages=hello, **wrong))
    long = [{"role": "user", "content": "word " * 20_000}]
    raised(openai.BadRequestError, "too long", lambda: ask(model=MODEL, messages=long))
    stream = {"stream": True}
    raised(openai.BadRequestError, "too long, streamed", lambda: ask(model=MODEL, messages=long, **stream))


def full() -> None:
    """More requests than may wait: refused, and the refusal says when to come back."""
    many = dict(model=MODEL, prompt=["Once upon a time"] * 64, max_tokens=200, stream=True)
    taken, refused = [], None
    while refused is None and len(taken) < 8:
        try:
            taken.append(client.completions.create(**many, extra_body={"ignore_eos": True}))
        except openai.RateLimitError as e:
            refused = e
    tried("queue full", refused is not None and taken, len(taken))
    tried("retry-after", int(refused.response.headers["retry-after"]) >= 1, refused.response.headers)
    for stream in taken:
        stream.close()


for part in (models, completions, chat, errors, full, json_schema, logprobs):
    part()
