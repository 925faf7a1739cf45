//! Commands as what they are made of: arguments in order.

use bytes::Bytes;

use crate::reply::StreamId;

/// Whoever walks the arguments of a command: the writer of the wire, a model of a server, a printer for people.
///
/// [`count`](Self::count) comes first and says how many arguments follow, the command's name included.
pub trait ArgSink {
    /// How many arguments follow.
    fn count(&mut self, n: usize);
    /// A word that is always the same: the command's name, an option.
    fn word(&mut self, word: &'static [u8]);
    /// Any bytes: a key, a field, a value.
    fn bytes(&mut self, bytes: &[u8]);
    /// The content of a message, which may be large: a sink may keep a reference instead of copying.
    fn body(&mut self, body: &Bytes) {
        self.bytes(body);
    }
    /// A number, as its decimal text.
    fn int(&mut self, n: i64);
    /// The id of a stream entry, as `ms-seq`.
    fn id(&mut self, id: StreamId);
    /// A UUID, as its 36 characters in lower case.
    fn uuid(&mut self, uuid: &[u8; 16]);
}
