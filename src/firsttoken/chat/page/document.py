"""The page's HTML: Chainlit's own, without what it fetches from other hosts, and with a policy that keeps it so."""

from __future__ import annotations

import base64
import hashlib
import re

_FOREIGN = re.compile(r'<(?:link|script)\b[^>]*?(?:href|src)="https?://[^>]*>(?:\s*</script>)?', re.DOTALL)
_META = re.compile(r'<meta property="og:(?:image|url)"[^>]*>')
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def tidy(html: str) -> str:
    """Fonts and style sheets of other hosts go, and so do the meta tags that name them."""
    return _META.sub("", _FOREIGN.sub("", html))


def policy(html: str) -> str:
    """The content security policy under which this document runs, and nothing else does.

    Chainlit compiles the page's own elements in the browser, which takes `unsafe-eval`; inline scripts are known by
    their hashes.
    """
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in _INLINE.findall(html))
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src 'self' 'unsafe-eval' {hashes}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
