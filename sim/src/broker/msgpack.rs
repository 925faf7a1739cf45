//! Arrays of texts in MessagePack, as scripts pack the fields of a message.

use bytes::Bytes;

/// The texts of one packed array; none if it is anything else.
#[must_use]
pub fn texts(packed: &Bytes) -> Option<Vec<Bytes>> {
    let (count, mut at) = match *packed.first()? {
        kind @ 0x90..=0x9f => (usize::from(kind - 0x90), 1),
        0xdc => number(packed, 1, 2)?,
        0xdd => number(packed, 1, 4)?,
        _ => return None,
    };
    let mut texts = Vec::new();
    for _ in 0..count {
        let (length, start) = match *packed.get(at)? {
            kind @ 0xa0..=0xbf => (usize::from(kind - 0xa0), at + 1),
            0xd9 => number(packed, at + 1, 1)?,
            0xda => number(packed, at + 1, 2)?,
            0xdb => number(packed, at + 1, 4)?,
            _ => return None,
        };
        at = start + length;
        if at > packed.len() {
            return None;
        }
        texts.push(packed.slice(start..at));
    }
    (at == packed.len()).then_some(texts)
}

/// A number of so many bytes, and where it ends.
fn number(packed: &[u8], at: usize, bytes: usize) -> Option<(usize, usize)> {
    let digits = packed.get(at..at + bytes)?;
    Some((digits.iter().fold(0, |n, byte| n << 8 | usize::from(*byte)), at + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_are_read_and_nothing_else() {
        let packed = |bytes: &[u8]| texts(&Bytes::copy_from_slice(bytes));
        assert_eq!(packed(b"\x92\xa1a\xa0"), Some(vec!["a".into(), "".into()]));
        let long = [&[0xdc, 0, 1, 0xd9, 40][..], &[b'x'; 40]].concat();
        assert_eq!(packed(&long), Some(vec![Bytes::from(vec![b'x'; 40])]));
        for other in [&b""[..], b"\x92\xa1a", b"\x91\x01", b"\xa1a", b"\x91\xa1ab"] {
            assert_eq!(packed(other), None, "{other:?}");
        }
    }
}
