//! A model that is wrong in one way, to see that the comparison notices.

use bytes::Bytes;

use crate::generator::Trouble;
use crate::subject::{Model, Sent, Subject};
use crate::wire::Wire;

/// In which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// `XACK` counts one too many.
    WrongNumber,
    /// An error has another text.
    WrongText,
    /// Who waited and was served is not told.
    LostWake,
    /// A hash gets a field that nobody set, and nobody is told.
    SilentWrite,
    /// An entry that is read again counts as delivered once more; no reply shows it but that of `XPENDING`.
    SilentDelivery,
    /// Connections that wait say that they do not.
    NeverBlocked,
}

impl Lie {
    pub(crate) const ALL: [Self; 6] = [
        Self::WrongNumber,
        Self::WrongText,
        Self::LostWake,
        Self::SilentWrite,
        Self::SilentDelivery,
        Self::NeverBlocked,
    ];
}

/// The model with a lie.
pub(crate) struct Liar {
    model: Model,
    lie: Lie,
}

impl Liar {
    pub(crate) fn new(model: Model, lie: Lie) -> Self {
        Self { model, lie }
    }
}

impl Subject for Liar {
    fn reset(&mut self, password: bool) {
        self.model.reset(password);
    }

    fn set_trouble(&mut self, trouble: Trouble) {
        self.model.set_trouble(trouble);
    }

    fn connect(&mut self, connection: usize) -> i64 {
        self.model.connect(connection)
    }

    fn execute(&mut self, at_us: u64, connection: usize, args: &[Bytes]) -> Vec<Sent> {
        let mut sent = self.model.execute(at_us, connection, args);
        let is = |name: &str| args.first().is_some_and(|word| word == name);
        let words = |text: &str| text.split(' ').map(|word| Bytes::from(word.to_string())).collect::<Vec<_>>();
        match self.lie {
            Lie::LostWake => sent.retain(|sent| !matches!(sent, Sent::Reply(to, _) if *to != connection)),
            Lie::SilentWrite if is("HSET") => {
                self.model.execute(at_us, connection, &words("HSET h1 silent write"));
            }
            Lie::SilentDelivery if is("XREADGROUP") => {
                self.model.execute(at_us, connection, &words("XREADGROUP GROUP g1 c1 STREAMS s1 0"));
            }
            Lie::WrongNumber | Lie::WrongText => {
                for sent in &mut sent {
                    match sent {
                        Sent::Reply(_, Wire::Int(n)) if self.lie == Lie::WrongNumber && is("XACK") => *n += 1,
                        Sent::Reply(_, Wire::Error(text)) if self.lie == Lie::WrongText => text.push('.'),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        sent
    }

    fn wait(&mut self, at_us: u64, connection: usize) -> Vec<Sent> {
        self.model.wait(at_us, connection)
    }

    fn is_blocked(&self, connection: usize) -> bool {
        self.lie != Lie::NeverBlocked && self.model.is_blocked(connection)
    }

    fn gaps(&self) -> Vec<String> {
        self.model.gaps()
    }
}
