"""A browser without scripts: it keeps cookies, and sends the forms that a page has."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape

import httpx
from fastapi import FastAPI


class Browser:
    """Looks at the page of a server.

    Attributes:
        client: sends requests with the cookies of the browser, and follows no redirect.
    """

    def __init__(self, url: str, client: httpx.Client) -> None:
        self.client, self.origin = client, url

    def get(self, path: str) -> httpx.Response:
        """Open a page, without following redirects."""
        return self.client.get(path)

    def text(self, path: str) -> str:
        """The text of a page without markup, of which every white space is one blank."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return text_of(answer)

    def send(self, on: str, action: str, **fields: str) -> httpx.Response:
        """Send the form of the page ``on`` whose address is ``action``, as a browser does."""
        form = next(
            form for form in re.findall(r"<form.*?</form>", self.get(on).text, re.S) if f'action="{action}"' in form
        )
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
        return self.client.post(action, data={**hidden, **fields}, headers={"Origin": self.origin})

    def sign_in(self, secret: str) -> httpx.Response:
        """Sign in with a token."""
        return self.send("/page/sign-in", "/page/sign-in", token=secret)

    def following(self, path: str) -> httpx.Response:
        """The page after the one at ``path``, by its link."""
        return self.get(unescape(self.attribute(path, 'rel="next" href')))

    def attribute(self, path: str, before: str) -> str:
        """The value of the first attribute on a page whose markup begins with ``before``."""
        text = self.get(path).text
        assert f'{before}="' in text
        return text.partition(f'{before}="')[2].partition('"')[0]

    def form_token(self) -> str:
        """What the forms of the session have."""
        return self.attribute("/page/approvals", 'name="form_token" value')

    @property
    def cookie(self) -> str:
        """The value of the cookie of the session."""
        return self.client.cookies["cm_delta_session"]


def text_of(answer: httpx.Response) -> str:
    """The text of an answer, as a person reads it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


@contextmanager
def browser(url: str, *, secret: str | None = None) -> Iterator[Browser]:
    """A new browser, signed in with the token ``secret`` if there is one."""
    with httpx.Client(base_url=url, timeout=60) as client:
        opened = Browser(url, client)
        if secret is not None:
            assert opened.sign_in(secret).status_code == 303
        yield opened


def browser_of_application(app: FastAPI, *, secret: str) -> Browser:
    """A browser of an application that no server has started, so that nothing but its requests uses the catalog."""
    url = "http://page.example"
    opened = Browser(url, httpx.Client(base_url=url, transport=_Application(app)))
    assert opened.sign_in(secret).status_code == 303
    return opened


class _Application(httpx.BaseTransport):
    def __init__(self, app: FastAPI) -> None:
        self._transport = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())
