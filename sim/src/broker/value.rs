//! A reply as a value.

use std::borrow::Cow;

use bytes::Bytes;

/// A reply, or a part of one. What RESP2 lacks is written there as the server writes it: a map as a flat array.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value (`$-1`).
    Nil,
    /// No array (`*-1`); in RESP3 the same as [`Value::Nil`].
    NilArray,
    /// A number.
    Int(i64),
    /// A status, as `OK`. A script may make up its own.
    Status(Cow<'static, str>),
    /// A refusal: its code, a space, the text.
    Error(String),
    /// Bytes.
    Bulk(Bytes),
    /// A score, as servers of this version write it. RESP2 has it as bytes.
    Double(String),
    /// Text that RESP3 marks as such and RESP2 sends as bytes: `INFO`, `CLIENT LIST`.
    Verbatim(Bytes),
    /// An array.
    Array(Vec<Value>),
    /// Pairs.
    Map(Vec<(Value, Value)>),
    /// A set.
    Set(Vec<Value>),
    /// Something that was not asked for: a published message.
    Push(Vec<Value>),
}

impl Value {
    /// The status that most writes answer.
    pub const OK: Self = Self::Status(Cow::Borrowed("OK"));

    /// A status that is a constant.
    #[must_use]
    pub const fn status(text: &'static str) -> Self {
        Self::Status(Cow::Borrowed(text))
    }

    /// Bytes from anything.
    pub fn bulk(bytes: impl Into<Bytes>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// An error from its whole text, code first.
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }
}
