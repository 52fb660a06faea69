"""`python -m firsttoken.chat.page`: the page's own process. Prints its address once it listens; ends on SIGTERM.

Options: --url, --host, --port, --data-dir, --allow-origin; OPENAI_API_KEY and FIRSTTOKEN_UI_PASSWORD come from the
environment. Exit code 2: wrong use, 1: failed, with one sentence on standard error.
"""

from __future__ import annotations

import sys

from firsttoken.chat.page.options import parse
from firsttoken.errors import ConfigError, FirstTokenError


def main() -> int:
    try:
        options = parse(sys.argv[1:])
        from firsttoken.chat.page.process import run  # Chainlit reads its environment while it is imported

        run(options)
    except FirstTokenError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
