//! stub
use super::Value;
use bytes::Bytes;
use flota_core::command::{ArgSink, Command};
use flota_core::reply::{Reply, ReplyBuilder, StreamId};
struct W(Vec<Bytes>);
impl ArgSink for W {
    fn count(&mut self, _: usize) {}
    fn word(&mut self, w: &'static str) {
        self.0.push(Bytes::from_static(w.as_bytes()));
    }
    fn bytes(&mut self, b: &[u8]) {
        self.0.push(Bytes::copy_from_slice(b));
    }
    fn body(&mut self, b: &Bytes) {
        self.0.push(b.clone());
    }
    fn int(&mut self, n: i64) {
        self.0.push(n.to_string().into());
    }
    fn id(&mut self, id: StreamId) {
        self.0.push(id.to_string().into());
    }
    fn uuid(&mut self, u: &[u8; 16]) {
        self.0.push(flota_core::topic::MessageId(*u).to_string().into());
    }
}
pub fn words(c: &Command) -> Vec<Bytes> {
    let mut w = W(Vec::new());
    c.args(&mut w);
    w.0
}
pub fn encoded_len(c: &Command) -> usize {
    words(c).iter().map(|w| w.len() + 7).sum::<usize>() + 4
}
pub fn encoded_len_value(v: &Value, _: u8) -> usize {
    match v {
        Value::Bulk(b) | Value::Verbatim(b) => b.len() + 7,
        Value::Array(a) | Value::Set(a) | Value::Push(a) => {
            5 + a.iter().map(|v| encoded_len_value(v, 2)).sum::<usize>()
        }
        Value::Map(m) => 5 + m.iter().map(|(k, v)| encoded_len_value(k, 2) + encoded_len_value(v, 2)).sum::<usize>(),
        _ => 8,
    }
}
pub fn reply(v: &Value, resp: u8) -> Reply {
    let mut b = ReplyBuilder::new();
    put(v, resp, &mut b);
    b.finish()
}
fn put(v: &Value, resp: u8, b: &mut ReplyBuilder) {
    match v {
        Value::Nil | Value::NilArray => {
            b.nil();
        }
        Value::Int(n) => {
            b.int(*n);
        }
        Value::Status(s) => {
            b.status(s);
        }
        Value::Error(s) => {
            b.error(s);
        }
        Value::Bulk(s) | Value::Verbatim(s) => {
            b.bulk(s);
        }
        Value::Double(d) => {
            b.double(&d.to_string());
        }
        Value::Array(a) => {
            b.array(a.len() as u32);
            a.iter().for_each(|v| put(v, resp, b));
        }
        Value::Set(a) => {
            if resp == 3 {
                b.set(a.len() as u32);
            } else {
                b.array(a.len() as u32);
            }
            a.iter().for_each(|v| put(v, resp, b));
        }
        Value::Push(a) => {
            if resp == 3 {
                b.push(a.len() as u32);
            } else {
                b.array(a.len() as u32);
            }
            a.iter().for_each(|v| put(v, resp, b));
        }
        Value::Map(m) => {
            if resp == 3 {
                b.map(m.len() as u32);
            } else {
                b.array(2 * m.len() as u32);
            }
            m.iter().for_each(|(k, v)| {
                put(k, resp, b);
                put(v, resp, b);
            });
        }
    }
}
