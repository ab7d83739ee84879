"""Another local user: `python3 stranger.py < question` as `nobody`, with the standard library only.

The question is JSON: `calls` ([method, address, body, headers]) and `files` (paths). The answer
says, for each, which status came back and whether the file could be listed or read.
"""

import json
import os
import sys
import urllib.error
import urllib.request

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(method, address, body, headers):
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(address, data, sent, method=method)
    try:
        with DIRECT.open(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def look(path):
    try:
        if os.path.isdir(path):
            return f"listed {len(os.listdir(path))} names"
        with open(path, "rb") as file:
            return f"read {len(file.read())} bytes"
    except OSError as error:
        return type(error).__name__


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    told = {
        "uid": os.getuid(),
        "calls": [call(*each) for each in asked.get("calls", [])],
        "files": [look(path) for path in asked.get("files", [])],
    }
    json.dump(told, sys.stdout)
