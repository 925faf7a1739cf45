#!/usr/bin/env python3
"""Counts what a demo has left behind, without a line of the demo's own code.

    outsider.py DIR [SERVER]

DIR is what `flota demo --keep DIR` left: sent.log, worker-N.log (a message id a line), brokers.tsv (address, data
folder) and the brokers' data. A copy of each data folder is served by SERVER (default: redis-server or valkey-server)
on a port of its own, and read. Of an embedded broker the command log is read here, and counted; with SERVER, which is
`flota` then, a copy is served as well, and must say the same. One JSON object is the result. Exit status 0: every
message sent is on a broker, was handled, and is neither pending nor a dead letter.
"""

import collections
import glob
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

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
    if is_embedded(data):
        words = [server, "demo-broker", "--listen", f"127.0.0.1:{port}", "--dir", data]
    else:
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


LOG = "commands.log"
MAGIC = b"flota commands 1\n"


def is_embedded(data):
    return os.path.exists(os.path.join(data, LOG))


def commands(data):
    """What an embedded broker's log says, checked: the time in milliseconds and the words of each command."""
    with open(os.path.join(data, LOG), "rb") as file:
        log = file.read()
    if not log.startswith(MAGIC):
        sys.exit(f"{data}/{LOG} does not begin as a log")
    at = len(MAGIC)
    while at < len(log):
        length, of_length, of_payload = struct.unpack_from("<III", log, at)
        payload = log[at + 12 : at + 12 + length]
        right = zlib.crc32(log[at : at + 4]) == of_length and zlib.crc32(payload) == of_payload
        if not right or len(payload) != length:
            sys.exit(f"{data}/{LOG} is damaged at byte {at}")
        at += 12 + length
        (micros,) = struct.unpack_from("<Q", payload)
        place = 8
        while place < length:
            (count,) = struct.unpack_from("<I", payload, place)
            place += 4
            words = []
            for _ in range(count):
                (size,) = struct.unpack_from("<I", payload, place)
                words.append(payload[place + 4 : place + 4 + size].decode())
                place += 4 + size
            yield micros // 1000, words


def read_log(data):
    """As read_broker, from the log alone."""
    stored, dead, acked, last = {}, [], set(), {}
    for ms, words in commands(data):
        name, key = words[0].upper(), words[1] if len(words) > 1 else ""
        if name == "XADD":
            # Perhaps options; the entry's id, or * for one made of the time; then names and values in turn.
            place = next(i for i, word in enumerate(words[2:], 2) if re.fullmatch(r"[0-9]+-[0-9]+|\*", word))
            before = last.get(key, (0, 0))
            if words[place] == "*":
                entry = (ms, 0) if ms > before[0] else (before[0], before[1] + 1)
            else:
                entry = tuple(int(part) for part in words[place].split("-"))
            last[key] = entry
            fields = words[place + 1 :]
            id = dict(zip(fields[::2], fields[1::2]))["id"]
            if key == "stream:topic:demo:dlq":
                dead.append(id)
            elif key.startswith("stream:topic:demo:p:"):
                stored[key, "%d-%d" % entry] = id
        elif name == "XACK" and words[2] == "demo":
            acked.update((key, entry) for entry in words[3:])
        elif name in ("XDEL", "XTRIM", "FLUSHALL") or name in ("DEL", "UNLINK") and key.startswith("stream:topic:demo:p:"):
            sys.exit(f"{data}/{LOG}: a demo keeps what it has stored, and here is {words}")
    return list(stored.values()), dead, len(set(stored) - acked)


def read(server, data):
    if not is_embedded(data):
        return read_broker(server, data)
    stored, dead, pending = counted = read_log(data)
    if server:
        said = read_broker(server, data)
        if [sorted(said[0]), sorted(said[1]), said[2]] != [sorted(stored), sorted(dead), pending]:
            sys.exit(f"{data}: the broker does not say what its log does")
    return counted


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
    sent = read_ids(os.path.join(folder, "sent.log"))
    lines = collections.Counter()
    workers = sorted(glob.glob(os.path.join(folder, "worker-*.log")))
    for path in workers:
        lines.update(read_ids(path))
    stored, dead, pending = collections.Counter(), [], 0
    with open(os.path.join(folder, "brokers.tsv")) as file:
        brokers = [line.rstrip("\n").split("\t") for line in file]
    server = sys.argv[2] if len(sys.argv) == 3 else None
    if not server and not all(is_embedded(os.path.join(folder, data)) for _, data in brokers):
        server = shutil.which("redis-server") or shutil.which("valkey-server")
        if not server:
            sys.exit("neither redis-server nor valkey-server is in PATH")
    for _, data in brokers:
        on_it, dead_on_it, pending_on_it = read(server, os.path.join(folder, data))
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
