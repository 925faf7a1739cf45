#!/usr/bin/env python3
"""Counts what a demo has left behind, without a line of the demo's own code.

    outsider.py DIR [SERVER]

DIR is what `flota demo --keep DIR` left: sent.log, worker-N.log (a message id a line), brokers.tsv (address, data
folder) and the brokers' data. A copy of each data folder is served by SERVER (default: redis-server or valkey-server)
on a port of its own, and read. One JSON object is the result. Exit status 0: every message sent is on a broker, was
handled, and is neither pending nor a dead letter.
"""

import collections
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


class Redis:
    """As much of the protocol as is needed here."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def __call__(self, *words):
        words = [word.encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        count = int(rest)
        if count < 0:
            return None
        if kind == b"$":
            return self.file.read(count + 2)[:-2].decode()
        assert kind == b"*", line
        # A refusal inside of an array is not expected here and ends everything, which is right.
        return [self.reply() for _ in range(count)]


def free_port():
    for port in range(19000, 20000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    sys.exit("no free port from 19000 to 19999")


def serve(server, data):
    """Starts a server on the data and waits until it has read it."""
    port = free_port()
    words = [server, "--bind", "127.0.0.1", "--port", str(port), "--dir", data, "--appendonly", "yes", "--save", ""]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"{server} has ended with {process.returncode} at its start on {data}")
        try:
            redis = Redis(port)
            if redis("PING") == "PONG":
                return process, redis
        except (OSError, RuntimeError):
            pass  # not listening yet, or still loading
        time.sleep(0.02)
    process.kill()
    sys.exit(f"{server} has not read {data} within 20 s")


def keys(redis):
    cursor, found = "0", set()
    while True:
        cursor, page = redis("SCAN", cursor, "COUNT", "1000")
        found.update(page)
        if cursor == "0":
            return found


def message_ids(redis, stream):
    ids = []
    for _, fields in redis("XRANGE", stream, "-", "+"):
        ids.append(dict(zip(fields[::2], fields[1::2]))["id"])
    return ids


def read_broker(server, data):
    """Message ids stored, dead letters, and how many deliveries are pending."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "data")
        shutil.copytree(data, copy)
        process, redis = serve(server, copy)
        try:
            stored, dead, pending = [], [], 0
            for key in keys(redis):
                if key == "stream:topic:demo:dlq":
                    dead += message_ids(redis, key)
                elif key.startswith("stream:topic:demo:p:"):
                    stored += message_ids(redis, key)
                    for group in redis("XINFO", "GROUPS", key):
                        group = dict(zip(group[::2], group[1::2]))
                        pending += group["pending"]
            return stored, dead, pending
        finally:
            process.kill()
            process.wait()


def read_ids(path):
    with open(path) as file:
        ids = file.read().splitlines()
    wrong = [line for line in ids if not ID.match(line)]
    if wrong:
        sys.exit(f"{path} has a line that is no message id: {wrong[0]!r}")
    return ids


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = sys.argv[1]
    server = sys.argv[2] if len(sys.argv) == 3 else shutil.which("redis-server") or shutil.which("valkey-server")
    if not server:
        sys.exit("neither redis-server nor valkey-server is in PATH")
    sent = read_ids(os.path.join(folder, "sent.log"))
    lines = collections.Counter()
    workers = sorted(glob.glob(os.path.join(folder, "worker-*.log")))
    for path in workers:
        lines.update(read_ids(path))
    stored, dead, pending = collections.Counter(), [], 0
    with open(os.path.join(folder, "brokers.tsv")) as file:
        brokers = [line.rstrip("\n").split("\t") for line in file]
    for _, data in brokers:
        on_it, dead_on_it, pending_on_it = read_broker(server, os.path.join(folder, data))
        stored.update(on_it)
        dead += dead_on_it
        pending += pending_on_it
    handled = {id for id in sent if lines[id] and id not in dead}
    result = {
        "sent": len(set(sent)),
        "handled": len(handled),
        "lost": len(set(sent) - handled),
        "redelivered": sum(1 for id in lines if lines[id] > 1),
        "brokers": len(brokers),
        "workers": len(workers),
        "stored": len(stored),
        "not_stored": len(set(sent) - set(stored)),
        "stored_twice": sum(1 for id in stored if stored[id] > 1),
        "not_sent": len(set(lines) - set(sent)),
        "dead": len(set(dead)),
        "pending": pending,
    }
    print(json.dumps(result))
    # A topic that is trimmed has fewer messages on its brokers than were sent. The demo's is not.
    sys.exit(0 if not (result["lost"] or result["not_stored"] or result["not_sent"] or dead or pending) else 1)


if __name__ == "__main__":
    main()
