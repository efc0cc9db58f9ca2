"""What looks like a secret is masked, and nothing else is."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import secrets
import time
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tsnb.kernels.output.screen import Screen, plain
from tsnb.records.writes import as_json
from tsnb.text.masks import MASK, is_masked, is_plain_word, masked, masked_text
from tsnb.text.printable import block, coloured, one_line
from tsnb.text.words import marked_html

JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "hunter2"), ("db_password", "x"), ("PGPASSWORD", "swordfish"), ("passphrase", "correct horse"),
        ("api_key", "abc"), ("apiKey", "abc"), ("OPENAI_API_KEY", "abc"), ("AWS_SECRET_ACCESS_KEY", "abc"),
        ("wandb_key", "0123abc"), ("key", "s3cret-key-of-mine"), ("token", "abc"), ("HF_TOKEN", "a"),
        ("client_secret", "abc"), ("credentials", "me:word"), ("db_pass", "abc"), ("authToken", "abc"),
        ("password", b"bytes too"),
        ("x", "sk-proj-abcdEFGH1234abcdEFGH1234"), ("x", "ghp_" + "a1B2" * 9), ("x", "github_pat_" + "a1B2c" * 9),
        ("x", "AKIAIOSFODNN7EXAMPLE"), ("x", "hf_" + "aBcD" * 9), ("x", JWT), ("x", "xoxb-123456789012-abcdefGHIJ"),
        ("x", "glpat-aBcDeFgHiJkLmNoPqRsT"),
        ("x", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"),
        ("x", "d41d8cd98f00b204e9800998ecf8427e"),
        ("", "9aF3kQ7zLm2Xc8Vb5Nt1"),
    ],
)  # fmt: skip
def test_secrets_are_masked(name: str, value: Any) -> None:
    """By their name, by the shape of a known kind of token, or as long random text."""
    assert masked(value, name) == MASK


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.1), ("max_tokens", 512), ("password", None), ("token", True), ("pad_token", "<pad>"), ("token", "<s>"),
        ("cls_token", "[CLS]"), ("tokenizer", "bert-base-uncased"), ("key", "image"), ("sort_key", "loss"),
        ("monkey", "banana"), ("keyboard", "qwerty"), ("model", "resnet50-imagenet1k-v2-augmented"),
        ("author", "somebody"), ("run", "lr0.1-wd0.01-bs32-ep10-d3-h4-s1"),
        ("path", "/data/imagenet/ILSVRC2012/train/n01440764"), ("url", "https://example.com/data/set.tar.gz"),
        ("checkpoint", "epoch=12-step=34000.ckpt"), ("when", "2026-11-22T07:15:34.123456+00:00"),
        ("run", "550e8400-e29b-41d4-a716-446655440000"), ("device", "MIG-550e8400-e29b-41d4-a716-446655440000"),
        ("note", "a plain sentence of words, somewhat longer than twenty letters"), ("optimizer", "adam w"),
        ("dataset", "HuggingFaceM4/the_cauldron"), ("compressed", b"\x00\x01\x02"),
        ("model", "microsoft/DialoGPT-medium"), ("model", "meta-llama/Llama-3.2-11B-Vision-Instruct"),
        ("name", "EfficientNetB0WithAttentionHeads"),
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(name: str, value: Any) -> None:
    """Numbers are none, and the words of models, data sets and paths are not masked: results are read by them."""
    assert masked(value, name) is value or masked(value, name) == value


def test_random_text_of_any_usual_alphabet_is_masked() -> None:
    """Hexadecimal, base64, URL-safe: of 400 each a few look like words at most."""
    for make in (secrets.token_hex, secrets.token_urlsafe):
        assert sum(masked(make(32)) != MASK for _ in range(400)) <= 12


def test_lists_and_mappings_are_looked_into() -> None:
    """A configuration keeps its shape, and what is in it that is no secret."""
    config = {
        "optimizer": "adam",
        "login": {"user": "me", "password": "x1"},
        "tokens": ["a", "ghp_" + "a1B2" * 9],
        "at": (1, 2),
    }
    shown = masked(config)
    assert shown == {
        "optimizer": "adam",
        "login": {"user": "me", "password": MASK},
        "tokens": ["a", MASK],
        "at": (1, 2),
    }
    assert config["login"] == {"user": "me", "password": "x1"}, "the value itself is left alone"
    assert is_masked(shown) and not is_masked({"a": ["b", 1]})
    assert masked(shown) == shown


@pytest.mark.slow
def test_what_contains_itself_or_is_large_is_looked_at_as_far_as_a_secret_may_lie() -> None:
    """No endless descent, no copy of a list that holds none, no minute over a corpus."""
    circle: list[Any] = ["ghp_" + "a1B2" * 9]
    circle.append(circle)
    assert masked(circle)[0] == MASK
    large = [0.5] * 1_000_000
    assert masked({"data": large})["data"] is large
    corpus = "a" * 5_000_000
    assert masked(corpus, "text") is corpus
    assert masked_text(corpus + ' password="x1"').endswith(f'password="{MASK}"')
    assert masked_text("a-" * 500_000) == "a-" * 500_000


def test_secrets_in_text_are_masked_and_the_rest_is_kept() -> None:
    """A cell's code, an exception: assignments, arguments, addresses, and values that were masked before."""
    masked("tr0ub4dor&3", "password")
    text = (
        'client = Client(api_key="abc", name="me")\n'
        "os.environ['HF_TOKEN'] = 'xyz'\n"
        'config = {"password": "pw", "lr": 0.1}\n'
        'db = connect("postgres://me:word@host/db")\n'
        f"headers = 'Bearer {JWT}'\n"
        "KeyError: 'tr0ub4dor&3'\n"
        'loss = net(x, key="image")\n'
    )
    assert masked_text(text) == (
        f'client = Client(api_key="{MASK}", name="me")\n'
        f"os.environ['HF_TOKEN'] = '{MASK}'\n"
        f'config = {{"password": "{MASK}", "lr": 0.1}}\n'
        f'db = connect("postgres://{MASK}@host/db")\n'
        f"headers = 'Bearer {MASK}'\n"
        f"KeyError: '{MASK}'\n"
        'loss = net(x, key="image")\n'
    )


@pytest.mark.parametrize("text", ["adam", "adam w", "resnet-18", "cosine_lr"[:6], "3x3", "v1.5", "fp16"])
def test_plain_words_may_stand_in_names(text: str) -> None:
    """So that trials are told apart by them."""
    assert is_plain_word(text)


@pytest.mark.parametrize("text", ["", "/data/a", "a" * 17, "9aF3kQ7zLm2Xc8", MASK, "line\nline", "ünï"])
def test_what_is_no_plain_word_stands_in_no_name(text: str) -> None:
    """Paths, long text, random text."""
    assert not is_plain_word(text)


SECRET = "sk-test-4f9aK2mXq7Lz81"
WORD = "tr0ub4dor&3x"


@dataclasses.dataclass
class Login:
    user: str
    password: str


class Slotted:
    __slots__ = ("api_key",)

    def __init__(self) -> None:
        self.api_key = SECRET


class Keys(enum.Enum):
    MINE = SECRET


class TextKeys(str, enum.Enum):
    MINE = SECRET


class Row(NamedTuple):
    user: str
    password: str


def connect(*_: Any, **__: Any) -> None:
    """Stand for what a partial calls."""


@pytest.mark.parametrize(
    "value",
    [
        Login("me", WORD), argparse.Namespace(user="me", password=WORD), functools.partial(connect, password=WORD),
        functools.partial(connect, SECRET), Keys.MINE, TextKeys.MINE, Row("me", WORD),
        types.SimpleNamespace(token=WORD),
        Slotted(), {"login": Login("me", WORD)}, [Row("me", WORD)], collections.OrderedDict(password=WORD),
        collections.UserDict(password=WORD), Path(f"/data/{SECRET}/x"), deque([SECRET]),
        functools.partial(functools.partial(connect, Login("me", WORD)), 1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_objects_are_searched_and_shown_without_their_secrets(value: Any) -> None:
    """By the names of their fields, attributes and arguments; what else is in them stays to be read."""
    shown = masked({"given": value})["given"]
    for text in (repr(shown), str(shown), as_json({"given": shown})):
        assert SECRET not in text and WORD not in text and MASK in text, text


def test_objects_without_secrets_stay_what_they_are() -> None:
    """The value itself, for tables and sorting; a model or lists of lists of lists take no time."""
    nested: Any = 1
    for _ in range(8):
        nested = [nested] * 1000
    for value in (
        Login("me", ""),
        Row("me", ""),
        functools.partial(connect, 1),
        torch.nn.Linear(2, 2),
        nested,
        Path("/a"),
    ):
        assert masked(value) is value


@pytest.mark.parametrize(
    "text",
    [
        "GET /x failed, headers: Authorization: Bearer {}", "{{'Authorization': 'Bearer {}'}}", "bearer {}",
        "Authorization: Basic {}", "X-Api-Key: {}", "could not connect: host=db user=me password={} dbname=x",
        "Server=db;Uid=me;Pwd={};", "https://host/get?user=me&token={}&x=1", "mysql --password={} -u me",
        "export HF_TOKEN={}", "postgresql+psycopg://me:{}@db:5432/x", "redis://:{}@cache/0", "PGPASSWORD={} psql",
        "password='{}'", 'api_key: "{}"', "fatal: 'https://me:{}@host/repo.git/' not found",
        "Login(user='me', password='{}')",
    ],
)  # fmt: skip
def test_secrets_are_found_in_text_of_any_usual_form(text: str) -> None:
    """Headers, connection strings, addresses, command lines."""
    for word in ("pa55w0rd.Xy-9", "4f9aK2mXq7Lz81TT"):
        assert word not in masked_text(text.format(word))
        assert MASK in masked_text(text.format(word))


@pytest.mark.parametrize(
    "text",
    [
        "sorted(rows, key=str.lower)", "net(x, password=password)", "fit(token=token, key=key)", "loss=0.31 token=512",
        "the bearer of this", "authorization: str", "x=1 y=2", "tokens_per_s=3.5 lr=0.1", "https://host/a?x=1&page=2",
        "    api_key=api_key\n)", "headers = authorization(make)", "password=None", "max-tokens=512 --pad-token=x1",
    ],
)  # fmt: skip
def test_text_without_secrets_stays(text: str) -> None:
    """Code and numbers are read as they are."""
    assert masked_text(text) == text


PUMPS = (
    *(
        "sk-",
        "pk_",
        "eyJ",
        "-eyJ",
        "eyJa.",
        "a.eyJaaaaaaaaa.",
        "ghp_",
        "-ghp_",
        "xoxb-",
        "://",
        "://a:",
        "a:b@",
    ),
    *(
        "://a:b@c",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "password=",
        'password="',
        "x-",
        "x-key",
        "x-a-",
    ),
    *(
        "authorization: ",
        "bearer ",
        "a=",
        "a=b;",
        "a= ",
        "a" * 50 + "=",
        "-a",
        "_",
        "'",
        '"',
        "' \"",
        "\x1b[",
        "\r",
    ),
    *(
        "\x1b[1",
        "\x08",
        "{",
        "`",
        " ",
        "\n",
        "key ",
        "key  =",
        "a.",
        "A1",
        "0",
        "\u2028",
        "token:",
        "=",
        "?a=b&",
    ),
)
"""What a pattern that looks at one letter many times would choke on."""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "x"])
def test_no_text_takes_long_to_look_at(end: str) -> None:
    """Of 60,000 letters of anything; where each is looked at for each other, one takes minutes."""
    looks: dict[str, Callable[[str], object]] = {
        "text": masked_text, "value": masked, "line": lambda text: one_line(text, len(text)), "colours": coloured,
        "block": block, "code": marked_html, "screen": lambda text: Screen().feed(text), "log": plain,
        "plain": is_plain_word,
        "short value": lambda text: masked(text[:16_000], "token"), "name": lambda text: masked("x1", text),
    }  # fmt: skip
    for pump in PUMPS:
        text = (pump * (60_000 // len(pump)))[:60_000] + end
        for name, look in looks.items():
            began_s = time.process_time()
            look(text)
            assert time.process_time() - began_s < 20, (name, pump)
