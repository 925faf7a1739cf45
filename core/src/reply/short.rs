//! Bytes that are usually few: an entry id, `OK`, a name.

use alloc::boxed::Box;
use bytes::Bytes;

/// Up to 30 bytes in place; more in a buffer of their own.
#[derive(Clone)]
pub struct Short(Store);

#[derive(Clone)]
enum Store {
    Inline { len: u8, bytes: [u8; Short::INLINE] },
    // Boxed to keep the whole at 32 bytes: a long scalar reply is rare, a short one comes with every send.
    Long(Box<Bytes>),
}

impl Short {
    /// How many bytes fit in place.
    pub const INLINE: usize = 30;

    /// A copy of the bytes.
    #[must_use]
    pub fn new(from: &[u8]) -> Self {
        let mut bytes = [0; Self::INLINE];
        match bytes.get_mut(..from.len()) {
            Some(room) => {
                room.copy_from_slice(from);
                Self(Store::Inline { len: from.len() as u8, bytes })
            }
            None => Self(Store::Long(Box::new(Bytes::copy_from_slice(from)))),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Store::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Store::Long(bytes) => bytes,
        }
    }

    /// The bytes as text, if they are UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        core::str::from_utf8(self.as_bytes()).ok()
    }

    /// The bytes in a buffer that can be shared: a copy if they were held in place, a reference otherwise.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.0 {
            Store::Inline { .. } => Bytes::copy_from_slice(self.as_bytes()),
            Store::Long(bytes) => Bytes::clone(bytes),
        }
    }
}

impl PartialEq for Short {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Short {}

impl core::fmt::Debug for Short {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}
