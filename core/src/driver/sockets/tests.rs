use std::net::UdpSocket;

use super::{Announcements, Clock, drops_in};
use crate::config::{Config, Discovery};

fn listening() -> Announcements {
    let discovery = Discovery { listen: "127.0.0.1:0".parse().unwrap(), ..Discovery::default() };
    let config = Config { discovery: Some(discovery), ..Config::default() };
    Announcements::bind(&config).unwrap().unwrap()
}

#[test]
fn a_fleet_of_fixed_brokers_needs_no_socket() {
    assert!(Announcements::bind(&Config::brokers(["a:1"]).unwrap()).unwrap().is_none());
}

#[test]
fn two_listeners_share_an_address() {
    let first = listening();
    let listen = first.socket.local_addr().unwrap();
    let config = Config { discovery: Some(Discovery { listen, ..Discovery::default() }), ..Config::default() };
    assert_eq!(Announcements::bind(&config).unwrap().unwrap().socket.local_addr().unwrap(), listen);
}

#[test]
fn an_address_of_another_machine_is_refused_with_a_hint() {
    let listen = "192.0.2.1:63000".parse().unwrap();
    let config = Config { discovery: Some(Discovery { listen, ..Discovery::default() }), ..Config::default() };
    let error = alloc::format!("{}", Announcements::bind(&config).unwrap_err());
    assert!(error.contains("192.0.2.1:63000") && error.contains("0.0.0.0"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn what_the_kernel_drops_is_counted() {
    let listener = listening();
    assert!(listener.gauge.read().receive_buffer_bytes > 0);
    assert_eq!(listener.gauge.read().dropped, Some(0));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let datagram = [0; 60_000];
    // Nobody reads: more than any buffer that can have been granted.
    let enough = listener.gauge.read().receive_buffer_bytes / datagram.len() + 10;
    for _ in 0..enough {
        sender.send_to(&datagram, listener.socket.local_addr().unwrap()).unwrap();
    }
    assert!(listener.gauge.read().dropped > Some(0), "{:?}", listener.gauge.read());
}

#[test]
fn the_kernels_table_is_read_by_inode() {
    let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                 1: 0100007F:F618 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 ffff 12\n\
                 2: 0100007F:F618 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 ffff 34\n";
    assert_eq!(drops_in(table, 4712), Some(34));
    assert_eq!(drops_in(table, 1), None);
}

#[test]
fn the_clock_goes_forward_and_knows_the_year() {
    let clock = Clock::new();
    let (first, second) = (clock.now(), clock.now());
    assert!(second.mono >= first.mono && first.mono.0 > 0);
    // 2024-01-01.
    assert!(first.wall.0 > 1_704_067_200_000);
}
