use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

pub(crate) mod cases;

const GUID: &str = "2cc7c345-3569-44bb-b57a-b72d729d7012";

fn json(datagram: &[u8]) -> String {
    let mut out = String::new();
    match parse(datagram) {
        Ok(announcement) => announcement.write_json(&mut out),
        Err(reject) => reject.write_json(&mut out),
    }
    .expect("a string takes everything");
    out
}

fn up_with(address: &str, seconds: &str) -> Vec<u8> {
    format!("imq-broker\t{GUID}\tup\t{address}\t{seconds}\tplain").into_bytes()
}

fn parsed_address(text: &str) -> Result<String, Reject> {
    parse(&up_with(text, "1")).map(|announcement| format!("{}", announcement.address))
}

fn parsed_millis(text: &str) -> Result<u64, Reject> {
    match parse(&up_with("10.0.4.12:6379", text))?.status {
        Status::Up { interval, .. } => Ok(interval.as_millis()),
        Status::Down => panic!("an up became a down"),
    }
}

fn parsed_status(tail: &str) -> Result<Status, Reject> {
    parse(format!("imq-broker\t{GUID}\t{tail}").as_bytes()).map(|announcement| announcement.status)
}

fn example() -> Announcement<'static> {
    Announcement {
        name: "imq-broker",
        guid: Guid::parse(GUID).expect("a GUID"),
        address: Address { host: Host::V4(Ipv4Addr::new(10, 0, 4, 12)), port: NonZeroU16::new(6379).expect("a port") },
        status: Status::Up { interval: Interval::from_millis(1500), transport: Transport::Tls },
    }
}

fn encoded(announcement: &Announcement<'_>) -> Result<String, EncodeError> {
    let mut out = Vec::new();
    announcement.encode(&mut out).map(|()| String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn each_case_has_its_outcome() {
    let single: Vec<_> = cases::all().into_iter().filter(|case| !case.is_about_members()).collect();
    assert_eq!(single.len(), 72);
    for case in single {
        assert_eq!(json(&case.datagrams[0]), case.outcome, "line {}: {}", case.line, case.note);
    }
}

#[test]
fn sequences_about_members_parse_but_for_the_port_zero() {
    let mut refused = Vec::new();
    for case in cases::all().into_iter().filter(cases::Case::is_about_members) {
        for datagram in &case.datagrams {
            match parse(datagram) {
                Ok(announcement) => assert!(
                    ["2cc7c345-3569-44bb-b57a-b72d729d7012", "99999999-3569-44bb-b57a-b72d729d7099"]
                        .contains(&format!("{}", announcement.guid).as_str()),
                    "line {}",
                    case.line
                ),
                Err(reject) => refused.push((reject, case.note)),
            }
        }
    }
    assert_eq!(refused, [(Reject::BadPort, "up then down, same guid, port 0")]);
}

/// Everything is wrong at first; each step repairs what was complained about.
#[test]
fn rejections_are_tested_in_their_order() {
    let long = "\t".repeat(ACCEPTED_BYTES_MAX);
    let mut steps: Vec<Vec<u8>> = vec![[b"\xff", long.as_bytes()].concat(), b"\xff".to_vec()];
    for text in [
        "no TAB",
        "\tguid\tstate\thost:port\tseconds",
        "name\tguid\tstate\t-host:port\tseconds",
        &format!("name\t{GUID}\tstate\t-host:port\tseconds"),
        &format!("name\t{GUID}\tup\t-host:port\tseconds"),
        &format!("name\t{GUID}\tup\thost:port\tseconds"),
        &format!("name\t{GUID}\tup\thost:1\tseconds"),
    ] {
        steps.push(text.as_bytes().to_vec());
    }
    let found: Vec<Reject> = steps.iter().map(|step| parse(step).expect_err("something is still wrong")).collect();
    assert_eq!(found, Reject::ALL);
    assert!(parse(format!("name\t{GUID}\tup\thost:1\t1").as_bytes()).is_ok());
}

#[test]
fn a_reject_counts_at_its_index_and_is_called_like_its_variant() {
    for (index, reject) in Reject::ALL.into_iter().enumerate() {
        assert_eq!(reject.index(), index);
        assert_eq!(format!("{reject}"), format!("{reject:?}"));
    }
}

#[test]
fn length_counts_before_anything_is_ignored() {
    let mut datagram = format!("name\t{GUID}\tdown\thost:1").into_bytes();
    datagram.resize(ACCEPTED_BYTES_MAX, b'\n');
    assert!(parse(&datagram).is_ok());
    datagram.push(b'\n');
    assert_eq!(parse(&datagram), Err(Reject::TooLong));
}

#[test]
fn the_whole_datagram_is_utf8_and_only_its_end_is_trimmed() {
    let datagram = [format!("name\t{GUID}\tdown\thost:1\t").as_bytes(), b"\xff"].concat();
    assert_eq!(parse(&datagram), Err(Reject::NotUtf8));

    assert!(parse(format!("name\t{GUID}\tdown\thost:1\0\r\n\n\0\r").as_bytes()).is_ok());
    assert_eq!(parse(format!("name\t{GUID}\tdown\thost:1 \n").as_bytes()), Err(Reject::BadPort));
    assert_eq!(parse(format!("name\t{GUID}\tdown\n\thost:1").as_bytes()), Err(Reject::BadStatus));
    assert_eq!(parse(b"name\tguid\tdown\r\n"), Err(Reject::MissingField));
    assert_eq!(parse(format!("name\t{GUID}\tdown\t").as_bytes()), Err(Reject::BadAddress));
}

#[test]
fn a_guid_is_36_characters_with_hyphens_in_their_places() {
    let upper = GUID.to_ascii_uppercase();
    assert_eq!(Guid::parse(&upper), Guid::parse(GUID));
    assert_eq!(format!("{}", Guid::parse(&upper).expect("a GUID")), GUID);
    assert_eq!(Guid::parse(GUID).expect("a GUID").to_bytes()[..4], [0x2c, 0xc7, 0xc3, 0x45]);
    for text in [
        "",
        "2cc7c345-3569-44bb-b57a-b72d729d701",
        "2cc7c345-3569-44bb-b57a-b72d729d70123",
        "2cc7c345-3569-44bb-b57ab-72d729d7012",
        "2cc7c345_3569_44bb_b57a_b72d729d7012",
        "2cc7c345-3569-44bb-b57a-b72d729d701g",
        "2cc7c345-3569-44bb-b57a-b72d729d70é",
        "2cc7c345356944bbb57ab72d729d7012    ",
        "urn:uuid:2cc7c345-3569-44bb-b57a-b72d729d7012",
    ] {
        assert_eq!(Guid::parse(text), None, "{text}");
    }
}

#[test]
fn addresses_that_are_accepted() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    for (text, shown) in [
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("255.255.255.255:65535", "255.255.255.255:65535"),
        ("10.0.4.12:006379", "10.0.4.12:6379"),
        ("[::]:1", "[::]:1"),
        ("[2001:DB8:0:0:0:0:0:7]:6379", "[2001:db8::7]:6379"),
        ("[::FFFF:a00:40c]:6379", "[::ffff:10.0.4.12]:6379"),
        ("localhost:6379", "localhost:6379"),
        ("Redis-1.Local:6379", "Redis-1.Local:6379"),
        ("3com.x--y.1a:6379", "3com.x--y.1a:6379"),
        (&format!("{longest}:1"), &format!("{longest}:1")),
    ] {
        assert_eq!(parsed_address(text).as_deref(), Ok(shown), "{text}");
    }
}

#[test]
fn addresses_that_are_refused() {
    let label = "a".repeat(63);
    let too_long = format!("{label}.{label}.{label}.{}", "b".repeat(62));
    for host in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "-a",
        "a-",
        "a.-b",
        "a_b",
        "a b",
        "ä",
        "a\n",
        "1",
        "host.1",
        "10.0.4.12.",
        "10.0.4.12.13",
        "::1",
        "[]",
        "[::1",
        "::1]",
        "[::1]x",
        "x[::1]",
        "[[::1]]",
        "[::1%eth0]",
        "[10.0.4.12]",
        "[localhost]",
        "[::ffff:010.0.4.12]",
        &"a".repeat(64),
        &too_long,
    ] {
        assert_eq!(parsed_address(&format!("{host}:6379")), Err(Reject::BadAddress), "{host:?}");
    }
    for text in ["", "host", "10.0.4.12", "[::1]"] {
        assert_eq!(parsed_address(text), Err(Reject::BadAddress), "{text:?} has no port at all");
    }
    for port in ["", "0", "00000", "65536", "99999999999999999999", "-1", "+1", " 1", "1 ", "1a", "0x1", "1.0", "١"] {
        assert_eq!(parsed_address(&format!("host:{port}")), Err(Reject::BadPort), "{port:?}");
    }
}

#[test]
fn intervals_are_cut_to_milliseconds_and_saturate() {
    for (text, millis) in [
        ("0", 0),
        ("007", 7000),
        ("1.5", 1500),
        ("1.05", 1050),
        ("0.0019", 1),
        ("0.0009", 0),
        ("2.123456789012345678901234567890", 2123),
        ("18446744073709551.615", u64::MAX),
        ("18446744073709551.614", u64::MAX - 1),
        ("18446744073709551.616", u64::MAX),
        ("18446744073709552", u64::MAX),
        ("99999999999999999999999999", u64::MAX),
    ] {
        assert_eq!(parsed_millis(text), Ok(millis), "{text}");
    }
    for text in ["", " 1", "1 ", "+1", "-0", "1.", ".5", ".", "1.5.", "1..5", "1.5.5", "1.-5", "1s", "١", "1.١"] {
        assert_eq!(parsed_millis(text), Err(Reject::BadInterval), "{text:?}");
    }
}

#[test]
fn the_marker_is_optional_and_strange_ones_say_nothing() {
    for (tail, expected) in [
        ("up\th:1", Transport::Unspecified),
        ("up\th:1\t0", Transport::Unspecified),
        ("up\th:1\t0\t", Transport::Unspecified),
        ("up\th:1\t0\tquic", Transport::Unspecified),
        ("up\th:1\t0\ttls ", Transport::Unspecified),
        ("up\th:1\t0\tTls\tplain", Transport::Tls),
        ("uP\th:1\t0\tPLAIN", Transport::Plain),
    ] {
        assert_eq!(
            parsed_status(tail),
            Ok(Status::Up { interval: Interval::default(), transport: expected }),
            "{tail}"
        );
    }
    assert_eq!(parsed_status("DowN\th:1\tnot a number\ttls"), Ok(Status::Down));
}

#[test]
fn json_escapes_what_json_demands() {
    let mut out = String::new();
    Announcement { name: "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}\u{2028}ö", status: Status::Down, ..example() }
        .write_json(&mut out)
        .expect("a string takes everything");
    assert_eq!(
        out,
        format!(
            r#"{{"status":"down","name":"\"\\/\b\f\n\r\t\u0001\u001f{}ö","guid":"{GUID}","address":"10.0.4.12:6379"}}"#,
            "\u{7f}\u{2028}"
        )
    );
}

#[test]
fn the_wire_form_is_exact() {
    let up = |millis, transport| Announcement {
        status: Status::Up { interval: Interval::from_millis(millis), transport },
        ..example()
    };
    let head = format!("imq-broker\t{GUID}");
    for (announcement, expected) in [
        (up(1000, Transport::Plain), "up\t10.0.4.12:6379\t1\tplain"),
        (up(1500, Transport::Tls), "up\t10.0.4.12:6379\t1.5\ttls"),
        (up(0, Transport::Unspecified), "up\t10.0.4.12:6379\t0"),
        (up(1050, Transport::Unspecified), "up\t10.0.4.12:6379\t1.05"),
        (up(60_001, Transport::Unspecified), "up\t10.0.4.12:6379\t60.001"),
        (Announcement { status: Status::Down, ..example() }, "down\t10.0.4.12:6379"),
    ] {
        assert_eq!(encoded(&announcement), Ok(format!("{head}\t{expected}")));
    }
}

#[test]
fn what_no_datagram_can_say_is_not_sent() {
    let named = |name| encoded(&Announcement { name, ..example() });
    assert_eq!(named(""), Err(EncodeError::EmptyName));
    assert_eq!(named("a\tb"), Err(EncodeError::TabInName));
    for name in ["", "a\tb", "::1", "[::1]", "10.0.4", "a_b"] {
        let address = Address { host: Host::Name(name), ..example().address };
        assert_eq!(encoded(&Announcement { address, ..example() }), Err(EncodeError::BadHost), "{name:?}");
    }
}

#[test]
fn at_most_255_bytes_are_sent_and_a_refusal_leaves_the_buffer_alone() {
    let overhead = encoded(&example()).expect("it fits").len() - example().name.len();
    let name = "n".repeat(EMITTED_BYTES_MAX + 1 - overhead);
    let fits = Announcement { name: &name[1..], ..example() };
    let exceeds = Announcement { name: &name, ..example() };

    let mut out = b"before".to_vec();
    assert_eq!(exceeds.encode(&mut out), Err(EncodeError::TooLong { bytes: EMITTED_BYTES_MAX + 1 }));
    assert_eq!(out, b"before");
    assert_eq!(fits.encode(&mut out), Ok(()));
    assert_eq!(out.len(), "before".len() + EMITTED_BYTES_MAX);
    assert_eq!(parse(&out["before".len()..]), Ok(fits));
}

/// The owned parts of an announcement, since strategies cannot borrow.
fn parts() -> impl Strategy<Value = (String, [u8; 16], Result<core::net::IpAddr, String>, NonZeroU16, Status)> {
    let name = prop_oneof!["[a-z-]{1,30}", "[^\t]{1,80}"];
    let host = prop_oneof![
        any::<core::net::IpAddr>().prop_map(Ok),
        "([a-zA-Z0-9]([a-zA-Z0-9-]{0,8}[a-zA-Z0-9])?\\.){0,4}[a-z]([a-zA-Z0-9-]{0,8}[a-zA-Z0-9])?".prop_map(Err),
    ];
    let millis = prop_oneof![0..100_000_u64, any::<u64>()];
    let transport = prop_oneof![Just(Transport::Plain), Just(Transport::Tls), Just(Transport::Unspecified)];
    let status = prop_oneof![
        Just(Status::Down),
        (millis, transport).prop_map(|(m, transport)| Status::Up { interval: Interval::from_millis(m), transport }),
    ];
    (name, any::<[u8; 16]>(), host, any::<NonZeroU16>(), status)
}

/// Bytes that come close to a datagram, so that every field gets its share of nonsense.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"\t".to_vec()),
        1 => Just(GUID.as_bytes().to_vec()),
        1 => prop_oneof![Just(b"up".to_vec()), Just(b"down".to_vec())],
        1 => prop_oneof![Just(b"10.0.4.12:6379".to_vec()), Just(b"[::1]:1".to_vec()), Just(b"a.b:1".to_vec())],
        1 => "[0-9.:\\[\\]a-f-]{0,12}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// A well-formed datagram, then a few bytes of it replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    ("(up|down|UP)", "(10\\.0\\.4\\.12|\\[::1\\]|a-b\\.c):[1-9][0-9]{0,3}", "[0-9]{1,22}(\\.[0-9]{1,6})?", damage)
        .prop_map(|(status, address, seconds, damage)| {
            let mut bytes = format!("imq-broker\t{GUID}\t{status}\t{address}\t{seconds}\ttls").into_bytes();
            for (index, byte) in damage {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
}

/// What was accepted is read back equal once it is written.
fn survives_the_wire(datagram: &[u8]) {
    let Ok(announcement) = parse(datagram) else { return };
    let mut out = Vec::new();
    match announcement.encode(&mut out) {
        Ok(()) => assert_eq!(parse(&out), Ok(announcement)),
        Err(EncodeError::TooLong { bytes }) => assert!(bytes > EMITTED_BYTES_MAX),
        Err(error) => panic!("accepted, but cannot be written: {error}"),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back((name, guid, host, port, status) in parts()) {
        let host = match &host {
            Ok(core::net::IpAddr::V4(ip)) => Host::V4(*ip),
            Ok(core::net::IpAddr::V6(ip)) => Host::V6(*ip),
            Err(name) => Host::Name(name),
        };
        let announcement = Announcement { name: &name, guid: Guid::from_bytes(guid), address: Address { host, port }, status };
        let mut out = Vec::new();
        match announcement.encode(&mut out) {
            Ok(()) => {
                prop_assert!(out.len() <= EMITTED_BYTES_MAX);
                prop_assert_eq!(parse(&out), Ok(announcement));
            }
            Err(EncodeError::TooLong { bytes }) => prop_assert!(bytes > EMITTED_BYTES_MAX),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(datagram in prop::collection::vec(any::<u8>(), 0..1100)) {
        survives_the_wire(&datagram);
    }

    #[test]
    fn almost_datagrams_do_no_harm(datagram in almost()) {
        survives_the_wire(&datagram);
    }

    #[test]
    fn damaged_datagrams_do_no_harm(datagram in damaged()) {
        survives_the_wire(&datagram);
    }
}
