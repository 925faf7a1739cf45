//! The addresses of this host, and which of them somebody selected.

use std::net::{IpAddr, Ipv4Addr};

use crate::error::Failure;

/// More prefixes than this are ignored, as announcers in the field do.
const PREFIXES_MAX: usize = 16;

/// Every IPv4 address of this host, in order, each once.
pub(crate) fn local_v4() -> Result<Vec<Ipv4Addr>, Failure> {
    let interfaces =
        if_addrs::get_if_addrs().map_err(|error| Failure::io("cannot list this host's addresses", &error))?;
    let mut addresses: Vec<Ipv4Addr> = interfaces
        .iter()
        .filter_map(|interface| match interface.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Those that begin, as dotted text, with one of the comma-separated prefixes: `10.` selects 10.0.0.0/8, and `10`
/// 100.64.0.1 as well.
pub(crate) fn selected(addresses: &[Ipv4Addr], prefixes: &str) -> Vec<Ipv4Addr> {
    let prefixes: Vec<&str> = prefixes.split(',').map(str::trim).filter(|p| !p.is_empty()).take(PREFIXES_MAX).collect();
    let begins = |address: &Ipv4Addr| {
        let text = address.to_string();
        // Nothing but commas is as good as nothing: it selects everything.
        prefixes.is_empty() || prefixes.iter().any(|prefix| text.starts_with(prefix))
    };
    addresses.iter().copied().filter(begins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_text() {
        let local: Vec<Ipv4Addr> =
            ["10.0.0.5", "100.64.0.1", "127.0.0.1"].iter().map(|text| text.parse().unwrap()).collect();
        let picked = |prefixes| selected(&local, prefixes).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(picked("10."), ["10.0.0.5"]);
        assert_eq!(picked("10"), ["10.0.0.5", "100.64.0.1"]);
        assert_eq!(picked(" 127. , 100.64"), ["100.64.0.1", "127.0.0.1"]);
        assert_eq!(picked("eth0"), [""; 0]);
        assert_eq!(picked(",").len(), 3);
        assert_eq!(picked(&format!("{}127.", "x,".repeat(16))), [""; 0], "the seventeenth is not read");
    }
}
