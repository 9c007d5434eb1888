"""The page answers an operator's questions from itself alone: live, light and dark, wide and narrow, and guarded."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.browser import Browser
from tests.support.engine import BLOCK, fetch, frame, keys_of, plan, register, release, store, tokens
from tests.support.served import Served, eventually, kvshelf

PAGE = Path(__file__).parents[3] / "service" / "rest" / "page"
QUESTIONS = [
    "Which tier serves most tokens?", "Why do tokens miss?",
    "Is the DRAM pool too small?", "When will the disk be full?",
]  # fmt: skip


def work(http: httpx.Client) -> None:
    """A prompt of 40 blocks: asked for in vain, stored, then found and loaded."""
    register(http)
    prompt = tokens(40 * BLOCK + 200)
    release(http, plan(http, prompt))
    keys = keys_of(http, prompt)[:40]
    store(http, b"".join(frame(key, (number + 1) * BLOCK) for number, key in enumerate(keys)))
    planned = plan(http, prompt)
    fetch(http, planned)
    release(http, planned)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    served.start()
    work(served.http)
    yield served
    served.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def shown(browser: Browser) -> bool:
    return bool(
        browser.value_of("!document.getElementById('all').hidden && document.querySelectorAll('.card').length == 4")
    )


def enter(browser: Browser, token: str) -> None:
    """Give the page a token, as a person would."""
    fill = f"document.getElementById('token').value = {json.dumps(token)}"
    browser.value_of(f"{fill}; document.querySelector('#access button').click()")


def text_of(browser: Browser, selector: str) -> str:
    return str(browser.value_of(f"document.querySelector({json.dumps(selector)}).innerText"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_it_answers_the_questions_on_any_screen(
    served: Served, browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.problems.clear()
    browser.look(served.url + "/", width=width, dark=dark)
    eventually(lambda: shown(browser), 10, 0.1)
    assert browser.value_of("[...document.querySelectorAll('.card h2')].map(one => one.textContent)") == QUESTIONS
    assert "The SSD" in text_of(browser, ".card p") or "Prefill" in text_of(browser, ".card p")
    assert "new text" in text_of(browser, "#misses")
    assert "block: stored" in text_of(browser, "#stores")
    assert re.search(r"SSD\s+serves", text_of(browser, "#tiers"))
    assert text_of(browser, "#health") == "ok"
    assert browser.value_of("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
    assert len(browser.picture(tmp_path / "page.png")) > 20_000
    assert browser.problems == []


def test_dark_is_dark_and_light_is_light(served: Served, browser: Browser) -> None:
    lightness = (
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)"
    )
    for dark in (False, True):
        browser.look(served.url + "/", dark=dark)
        eventually(lambda: shown(browser), 10, 0.1)
        assert (browser.value_of(lightness) < 200) is dark


def test_it_is_live(served: Served, browser: Browser) -> None:
    browser.look(served.url + "/")
    eventually(lambda: shown(browser), 10, 0.1)
    before = text_of(browser, "#tiers")
    store(served.http, frame("ab" * 32, BLOCK))
    eventually(lambda: text_of(browser, "#tiers") != before, 10, 0.2)


def test_a_service_that_hangs_does_not_look_well(served: Served, browser: Browser) -> None:
    browser.look(served.url + "/")
    eventually(lambda: shown(browser), 10, 0.1)
    is_stale = "document.getElementById('all').className === 'stale'"
    assert not browser.value_of(is_stale)
    served.signal(signal.SIGSTOP)
    try:
        eventually(lambda: browser.value_of(is_stale), 15, 0.2)
        assert "does not answer" in text_of(browser, "#health")
        assert browser.value_of("document.getElementById('health').className") == "bad"
    finally:
        served.signal(signal.SIGCONT)
    eventually(lambda: not browser.value_of(is_stale), 15, 0.2)


def test_it_asks_nobody_but_its_service(served: Served, browser: Browser) -> None:
    browser.asked_for.clear()
    browser.look(served.url + "/")
    eventually(lambda: shown(browser), 10, 0.1)
    assert {httpx.URL(url).netloc for url in browser.asked_for} == {httpx.URL(served.url).netloc}
    named = {url for path in PAGE.iterdir() for url in re.findall(r"\w+://[^\s\"'`]+", path.read_text())}
    assert named == {"http://www.w3.org/2000/svg"}
    policy = served.http.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_only_reading_is_possible(served: Served) -> None:
    for path in ("/", "/page/app.js", "/v1/overview"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            refused = served.http.request(method, path)
            assert refused.status_code == 405
            assert "GET" in refused.headers["allow"]
    for path in ("/", "/page/app.js", "/healthz"):
        read, head = served.http.get(path), served.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert [head.headers[name] for name in ("content-type", "content-length")] == [
            read.headers[name] for name in ("content-type", "content-length")
        ]
    assert served.http.head("/readyz").status_code == 204
    assert served.http.get("/page/nothing.js").status_code == 404
    assert served.http.get("/page/..%2f..%2fapp.py").status_code == 404


def test_with_tokens_it_asks_for_one_and_shows_nothing_before(tmp_path: Path, browser: Browser) -> None:
    made = {
        name: kvshelf("token", "new", *words).stdout
        for name, words in (
            ("operator", ["--tenant", "*", "--scopes", "read"]),
            ("tenant", ["--tenant", "acme", "--scopes", "read"]),
        )
    }
    (tmp_path / "tokens.toml").write_text("\n".join(text.split("\n", 1)[1] for text in made.values()))
    served = Served(tmp_path, KVSHELF_ACCESS__TOKEN_FILE=str(tmp_path / "tokens.toml"))
    served.start()
    try:
        assert served.http.get("/v1/overview").status_code == 401
        browser.look(served.url + "/")
        eventually(lambda: "asks for a token" in text_of(browser, "#health"), 10, 0.1)
        assert "kvshelf token new --tenant '*' --scopes read" in text_of(browser, "#access")
        assert browser.value_of("document.getElementById('untold').hidden"), "a link sends no token"
        enter(browser, made["tenant"].split()[0])
        eventually(lambda: "all tenants" in text_of(browser, "#health"), 10, 0.1)
        assert not shown(browser)
        enter(browser, made["operator"].split()[0])
        eventually(lambda: text_of(browser, "#health") == "ok", 10, 0.1)
        assert shown(browser)
        assert browser.value_of("document.getElementById('untold').hidden")
        assert browser.value_of("localStorage.length") == 0
    finally:
        served.close()
