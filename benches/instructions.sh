#!/bin/sh
# Instructions per stage of a message's way, against budgets. Unlike times they are the same on a busy machine.
#
#     benches/instructions.sh          prints the table; fails if a stage takes over a tenth more than its budget
#
# Needs valgrind. Each stage runs twice; the difference between the runs is free of what comes before and after.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind > /dev/null || { echo "instructions.sh: valgrind is not installed" >&2; exit 2; }
cargo build --quiet --release -p flota-benches --example stages
stages=${CARGO_TARGET_DIR:-target}/release/examples/stages

count() {
    log=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$stages" "$1" "$2" 2>&1) || { echo "$log" >&2; exit 2; }
    echo "$log" | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

over=0
report() {
    verdict=
    if [ $(($2 * 10)) -gt $(($3 * 11)) ]; then
        verdict=' OVER'
        over=1
    fi
    printf '%-12s %5d of %5d  %s%s\n' "$1" "$2" "$3" "$4" "$verdict"
}

sum=0
stage() {
    once=$(count "$1" 2000)
    more=$(count "$1" 6000)
    took=$(((more - once) / 4000))
    sum=$((sum + took))
    report "$1" "$took" "$2" "$3"
}

stage parse       1800 'one datagram, every byte looked at: 150 ns, as it is simple code and all in the cache'
stage hear        2900 'that and the engine: a keyed hash, a look-up, a comparison, a store'

# A loop by hand over one connection, pipelined, executes 5,400 instructions for a send and 6,000 for a delivery. Handles
# and wake-ups need 1,200 and 600 of these; the rest may be spent here. What each stage may take is what it needs.
sum=0
stage submit      2600 'a slab entry, an id, a broker, the text of an XADD with two fields'
stage scan_stored  400 'one short line of RESP'
stage stored      1200 'correlation, the digits of an id, the end of the operation'
report send "$sum" 4200 'all of these'
sum=0
stage scan_entry  1500 'an entry of two fields: every byte of framing once'
stage deliver     1500 'ranges into the reply, a slab entry, a verdict; no timer and no memory for one alone'
stage ack          450 'the digits of one id in an XACK'
report delivery "$sum" 5400 'all of these'
exit $over
