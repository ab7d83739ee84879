"""`python -m gogh_core.watch --port N`: the endpoint of GOGH's own metrics, until it is ended."""

from __future__ import annotations

import argparse
import signal
import threading

from gogh_core.settings import keep_private, load
from gogh_core.watch import serve


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    chosen = parser.parse_args()
    keep_private()
    server = serve(load(), host=chosen.host, port=chosen.port)
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start()
    )
    with server:
        server.serve_forever()


if __name__ == "__main__":
    main()
