//! Scripts.

use bytes::Bytes;

use super::{Broker, ClientId, ServerTime, Value};

/// Runs a script; its commands go through [`Broker::call_from_script`].
pub(super) fn run(
    _broker: &mut Broker,
    _at: ServerTime,
    _client: ClientId,
    _body: &Bytes,
    _keys: &[Bytes],
    _argv: &[Bytes],
) -> Value {
    Value::error("ERR scripts are not modelled yet")
}
