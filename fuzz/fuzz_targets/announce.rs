//! Whatever a datagram holds, the announcement parser returns, agrees with a second parser, and survives its own encoder.
#![no_main]

#[path = "../../core/tests/support/announce_check.rs"]
mod announce_check;

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| {
    announce_check::check(datagram);
});
