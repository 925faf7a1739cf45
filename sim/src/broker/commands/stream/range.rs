//! Reading a stream by id: `XLEN`, `XRANGE`, `XREVRANGE`.

use super::super::super::Value;
use super::super::super::call::{Call, Reaction, SYNTAX};
use super::super::is;
use super::{count_value, entry, interval_end, interval_start};

pub(super) fn len(call: &mut Call<'_>) -> Reaction {
    let stream = call.db.stream(call.word(1)?, call.at)?;
    Ok(count_value(stream.map_or(0, |stream| stream.len())))
}

pub(super) fn range(call: &mut Call<'_>, backwards: bool) -> Reaction {
    let (low, high) = if backwards { (3, 2) } else { (2, 3) };
    let start = interval_start(call.word(low)?)?;
    let end = interval_end(call.word(high)?)?;
    let mut count = None;
    let mut place = 4;
    while place < call.args.len() {
        if !is(call.word(place)?, "COUNT") || place + 1 >= call.args.len() {
            return Err(SYNTAX.into());
        }
        count = Some(usize::try_from(call.int(place + 1)?).unwrap_or(0));
        place += 2;
    }
    let Some(stream) = call.db.stream(call.word(1)?, call.at)? else { return Ok(Value::Array(Vec::new())) };
    if count == Some(0) {
        return Ok(Value::NilArray);
    }
    let count = count.unwrap_or(usize::MAX);
    let entries = stream.range(start, end);
    Ok(Value::Array(if backwards {
        entries.rev().take(count).map(|(id, fields)| entry(id, fields)).collect()
    } else {
        entries.take(count).map(|(id, fields)| entry(id, fields)).collect()
    }))
}
