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
stage() {
    once=$(count "$1" 2000)
    more=$(count "$1" 6000)
    took=$(((more - once) / 4000))
    verdict=
    if [ $((took * 10)) -gt $(($2 * 11)) ]; then
        verdict=' OVER'
        over=1
    fi
    printf '%-12s %6d of %5d  %s%s\n' "$1" "$took" "$2" "$3" "$verdict"
}

# What a client with one connection and no engine executes for a send is 5,400 instructions and for a delivery 6,000;
# the stages of each add up to less than half of that, because handles, hand-over and system calls take their part.
stage parse       600 'one datagram: 150 ns at four instructions per nanosecond'
stage hear       1200 'parse, one look-up, one comparison, one store'
stage submit     1900 'a slab entry, an id, a place, the text of an XADD with two fields'
stage scan_stored 400 'one short line of RESP'
stage stored      600 'correlation, reading the id, the end of the operation'
stage scan_entry 1500 'an entry of two fields: each byte of framing once'
stage deliver    1500 'ranges into the reply, a slab entry, a verdict; no timer and no memory of its own'
stage ack         450 'the digits of one id in an XACK'
exit $over
