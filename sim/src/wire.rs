//! stub
use crate::broker::Value;
use bytes::Bytes;
#[derive(Default)]
pub struct Requests(Vec<u8>);
impl Requests {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    pub fn next(&mut self) -> Result<Option<Vec<Bytes>>, String> {
        Ok(None)
    }
}
pub fn encode(_: &Value, _: u8, _: &mut Vec<u8>) {}
