//! The streams and hashes as they are, told as if they had just come to be: what a journal's reader needs when data was replaced
//! behind its back, by a restart that had forgotten something.

use flota_core::reply::StreamId;

use super::{Broker, Change, Object};

impl Broker {
    /// Every stream and hash of the data set as changes: entries, groups, what is pending in them, and fields.
    #[must_use]
    pub fn retell(&self) -> Vec<Change> {
        let mut told = Vec::new();
        for (key, item) in &self.db.items {
            if let Object::Hash(hash) = &item.object {
                told.extend(hash.iter().map(|(field, value)| Change::Field {
                    key: key.clone(),
                    field: field.clone(),
                    value: Some(value.clone()),
                }));
            }
            let Object::Stream(stream) = &item.object else { continue };
            for (id, fields) in stream.range(StreamId::MIN, StreamId::MAX) {
                told.push(Change::Added { key: key.clone(), id, fields: fields.to_vec() });
            }
            for (name, group) in stream.groups() {
                told.push(Change::Group { key: key.clone(), group: name.clone(), at: Some(group.last()) });
                for (id, pending) in group.pending() {
                    told.push(Change::Pending {
                        key: key.clone(),
                        group: name.clone(),
                        id: *id,
                        consumer: pending.consumer.clone(),
                        from: None,
                        idle_ms: 0,
                        deliveries: pending.deliveries,
                    });
                }
            }
        }
        told
    }
}
