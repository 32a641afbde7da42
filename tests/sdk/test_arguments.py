"""Arguments as people are shown them."""

from __future__ import annotations

import pytest

from holdfast.masking import HIDDEN, shown, url


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("a.py --api-key X --lr 1", f"a.py --api-key {HIDDEN} --lr 1"),
        ("a.py --wandb_api_key=X", f"a.py --wandb_api_key={HIDDEN}"),
        ("a.py logger.apiKey=X", f"a.py logger.apiKey={HIDDEN}"),
        ("a.py --hf-token X", f"a.py --hf-token {HIDDEN}"),
        ("a.py -password X", f"a.py -password {HIDDEN}"),
        ("a.py --token --lr 1", "a.py --token --lr 1"),
        ("a.py --data s3://me:X@host/a", f"a.py --data s3://{HIDDEN}@host/a"),
        *((kept, kept) for kept in ("a.py --tokenizer gpt2 --max-tokens 9", "a.py --key 1 --keys=2")),
        ("a.py --data s3://host:9000/a@b", "a.py --data s3://host:9000/a@b"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_hidden(argv: str, told: str) -> None:
    assert " ".join(shown(tuple(argv.split()))) == told
    assert shown(shown(tuple(argv.split()))) == shown(tuple(argv.split()))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ftp://me:a@b@host/c", "ftp://<me:a@b>@host/c"),
        ("sftp://me@host/c", "sftp://me@host/c"),
        ("https://host/c?sig=abc&v=2&X-Amz-Security-Token=de", "https://host/c?sig=<abc>&v=2&X-Amz-Security-Token=<de>"),
        ("filecache::s3://k:X@host/a", "filecache::s3://<k:X>@host/a"),
        ("/data/a?token=b", "/data/a?token=b"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_who_and_what_opens_it(text: str, told: str) -> None:
    assert url(text, lambda value: f"<{value}>") == told
    assert url(url(text)) == url(text)
