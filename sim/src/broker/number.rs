//! Numbers as the server writes them.

use std::fmt::Write;

use super::Profile;

/// As C's `%.17g`.
pub(crate) fn general_17(n: f64) -> String {
    if let Some(text) = special(n) {
        return text.to_string();
    }
    // The exponent after rounding to 17 digits decides which form it is.
    let scientific = format!("{n:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return without_zeros(&format!("{n:.decimals$}")).to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs())
}

/// The shortest digits that read back equal, as servers since 7.2 lay them out; whole numbers in full.
pub(crate) fn shortest(n: f64) -> String {
    const WHOLE: f64 = 4_611_686_018_427_387_904.0; // 2^62
    if let Some(text) = special(n) {
        return text.to_string();
    }
    if n.abs() < WHOLE && n.fract() == 0.0 {
        return (n as i64).to_string();
    }
    digits(n)
}

/// A score in a reply: newer servers lay out the shortest digits, older ones print 17.
pub(crate) fn score(n: f64, profile: &Profile) -> String {
    if !profile.at_least(7, 2) {
        return general_17(n);
    }
    special(n).map_or_else(|| digits(n), str::to_string)
}

/// The shortest digits that read back equal, without an exponent unless it saves much.
fn digits(n: f64) -> String {
    let scientific = format!("{:e}", n.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = i32::try_from(mantissa.bytes().filter(u8::is_ascii_digit).count()).unwrap_or(1);
    // The power of ten of the last digit.
    let last = exponent - (digits - 1);
    let plain = if last >= 0 { exponent < digits + 7 } else { last > -7 || exponent.abs() < 4 };
    if plain {
        return n.to_string();
    }
    let mut text = String::new();
    let (minus, sign) = (if n < 0.0 { "-" } else { "" }, if exponent < 0 { '-' } else { '+' });
    // Writing to a string cannot fail.
    let _ = write!(text, "{minus}{mantissa}e{sign}{}", exponent.unsigned_abs());
    text
}

/// A Lua number as a reply: towards zero, and as the hardware converts what does not fit.
pub(crate) fn truncated(n: f64) -> i64 {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if n > -TOO_LARGE && n < TOO_LARGE { n as i64 } else { i64::MIN }
}

fn special(n: f64) -> Option<&'static str> {
    if n.is_nan() {
        Some(if n.is_sign_negative() { "-nan" } else { "nan" })
    } else if n.is_infinite() {
        Some(if n > 0.0 { "inf" } else { "-inf" })
    } else {
        None
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 6.2.5 and 7.0.15 made of these numbers.
    #[test]
    fn seventeen_digits_as_c_prints_them() {
        for (n, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (3.99, "3.9900000000000002"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1e20, "1e+20"),
            (1e300, "1.0000000000000001e+300"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (-1.5, "-1.5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(general_17(n), text, "{n}");
        }
    }

    /// What Valkey 8.1.8 made of these numbers.
    #[test]
    fn shortest_digits_as_newer_servers_print_them() {
        for (n, text) in [
            (-0.0, "0"),
            (3.99, "3.99"),
            (0.1, "0.1"),
            (1e17, "100000000000000000"),
            (1e20, "1e+20"),
            (123_456_789_012_345_678.0, "123456789012345680"),
            (9_007_199_254_740_993.0, "9007199254740992"),
        ] {
            assert_eq!(shortest(n), text, "{n}");
        }
    }

    /// What the three servers made of these scores.
    #[test]
    fn scores_are_printed_as_the_version_does() {
        for (n, newer, older) in [
            (0.1, "0.1", "0.10000000000000001"),
            (-0.0, "-0", "-0"),
            (1000.0, "1000", "1000"),
            (12_345_678_901_234_567_890.0, "12345678901234567000", "1.2345678901234567e+19"),
            (f64::NEG_INFINITY, "-inf", "-inf"),
        ] {
            assert_eq!(score(n, &Profile::valkey_8_1()), newer);
            assert_eq!(score(n, &Profile::redis_7_0()), older);
            assert_eq!(score(n, &Profile::redis_6_2()), older);
        }
    }

    #[test]
    fn replies_are_cut_towards_zero() {
        for (n, whole) in [(3.99, 3), (-3.99, -3), (1e300, i64::MIN), (f64::NAN, i64::MIN), (f64::INFINITY, i64::MIN)] {
            assert_eq!(truncated(n), whole, "{n}");
        }
    }
}
