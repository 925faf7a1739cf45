//! What a handler's result means for its message.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::any::Any;
use core::error::Error;
use core::fmt::{self, Display};
use core::time::Duration;

use crate::op::Verdict;

/// The error of a handler that wants its message among the dead letters at once: no retry would help.
///
/// It is recognised as the error type itself and inside of a boxed [`Error`], so that `?` and a rejection go together:
///
/// ```
/// use flota_core::driver::Reject;
///
/// fn parse(body: &[u8]) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
///     let text = std::str::from_utf8(body)?; // a retry
///     text.parse().map_err(|_| Reject::new(format!("{text:?} is not a number")).into()) // a dead letter
/// }
/// # assert!(parse(b"x").unwrap_err().is::<Reject>());
/// ```
///
/// Inside of anything else, as another crate's error type, it cannot be seen and means a retry like every error: use
/// [`Job::reject`](super::Job::reject) there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject(pub String);

impl Reject {
    /// A rejection for this reason.
    #[must_use]
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Reject {}

/// What a handler may return: `()` and `Ok(())` are done, an error is a retry with its text as the reason, the error
/// [`Reject`] a dead letter; or a [`Verdict`] as it is.
pub trait IntoVerdict {
    /// The verdict it stands for.
    fn into_verdict(self) -> Verdict;
}

impl IntoVerdict for Verdict {
    fn into_verdict(self) -> Verdict {
        self
    }
}

impl IntoVerdict for () {
    fn into_verdict(self) -> Verdict {
        Verdict::Done
    }
}

impl<E: Display + 'static> IntoVerdict for Result<(), E> {
    fn into_verdict(self) -> Verdict {
        match self {
            Ok(()) => Verdict::Done,
            Err(error) => match rejection(&error) {
                Some(Reject(why)) => Verdict::Reject { reason: why.as_str().into() },
                None => retry(&error.to_string()),
            },
        }
    }
}

fn rejection(error: &dyn Any) -> Option<&Reject> {
    let boxed = error.downcast_ref::<Box<dyn Error + Send + Sync>>().and_then(|error| error.downcast_ref());
    let local = error.downcast_ref::<Box<dyn Error>>().and_then(|error| error.downcast_ref());
    error.downcast_ref().or(boxed).or(local)
}

pub(super) fn retry(reason: &str) -> Verdict {
    Verdict::Retry { reason: reason.into(), after: None }
}

/// The verdict on a message whose handler panicked with this payload.
pub(super) fn panicked(payload: &(dyn Any + Send)) -> Verdict {
    let literal = payload.downcast_ref::<&str>().copied();
    let said = literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    retry(&format!("handler panicked: {}", said.unwrap_or("with something that is no text")))
}

/// The verdict on a message whose handler ran for too long.
pub(super) fn overdue(limit: Duration) -> Verdict {
    let (seconds, ms) = (limit.as_secs(), limit.as_millis());
    let limit = if limit.subsec_millis() == 0 { format!("{seconds} s") } else { format!("{ms} ms") };
    retry(&format!("handler timeout after {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(verdict: Verdict) -> String {
        match verdict {
            Verdict::Retry { reason, after: None } => format!("retry {reason}"),
            Verdict::Reject { reason } => format!("reject {reason}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn results_mean_what_the_table_says() {
        assert_eq!(().into_verdict(), Verdict::Done);
        assert_eq!(Ok::<_, fmt::Error>(()).into_verdict(), Verdict::Done);
        assert_eq!(reason(Err("later").into_verdict()), "retry later");
        assert_eq!(reason(Err(Reject::new("bad")).into_verdict()), "reject bad");
        assert_eq!(Verdict::Release { started: true }.into_verdict(), Verdict::Release { started: true });
    }

    #[test]
    fn a_rejection_is_found_in_a_box() {
        let shared: Result<(), Box<dyn Error + Send + Sync>> = Err(Reject::new("bad").into());
        assert_eq!(reason(shared.into_verdict()), "reject bad");
        let local: Result<(), Box<dyn Error>> = Err(Reject::new("bad").into());
        assert_eq!(reason(local.into_verdict()), "reject bad");
        let other: Result<(), Box<dyn Error>> = Err("later".into());
        assert_eq!(reason(other.into_verdict()), "retry later");
    }

    #[test]
    fn panics_and_timeouts_are_named() {
        let payload: Box<dyn Any + Send> = Box::new("oh");
        assert_eq!(reason(panicked(&*payload)), "retry handler panicked: oh");
        let payload: Box<dyn Any + Send> = Box::new(String::from("no"));
        assert_eq!(reason(panicked(&*payload)), "retry handler panicked: no");
        assert_eq!(reason(overdue(Duration::from_secs(25))), "retry handler timeout after 25 s");
        assert_eq!(reason(overdue(Duration::from_millis(1_500))), "retry handler timeout after 1500 ms");
    }
}
