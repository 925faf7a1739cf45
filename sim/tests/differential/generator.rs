//! Command sequences from a seed: small alphabets, so that commands meet.

mod collections;
mod connection;
mod keys;
mod lists;
mod scripts;
mod streams;

use bytes::Bytes;

/// A sequence of commands on a few connections.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// The protocol each client speaks from the start: 2 or 3.
    pub(crate) protocols: Vec<u8>,
    /// Whether the server wants a [`PASSWORD`].
    pub(crate) password: bool,
    /// What happens, in order.
    pub(crate) steps: Vec<Step>,
}

/// One command of one client.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Who sends it; who can instead while this one is blocked is up to the runner.
    pub(crate) client: usize,
    /// The command, its name first.
    pub(crate) words: Vec<Word>,
    /// The command and the options in it, as they are counted.
    pub(crate) names: Vec<String>,
    /// It blocks for so short that one waits for the end of it.
    pub(crate) timed: bool,
    /// What is wrong with the server from here on.
    pub(crate) trouble: Option<Trouble>,
}

/// What may be wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing.
    None,
    /// It uses more memory than it may.
    MemoryFull,
    /// It has fewer replicas than it must have to take a write.
    NoReplicas,
}

/// What a server that wants a password wants, and what all commands that log in give.
pub(crate) const PASSWORD: &str = "secret";

/// An argument.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    /// As it is.
    Text(Bytes),
    /// A stream id that a server generated, each side's own: the `nth` that was seen, with something in front of it.
    Id { nth: usize, before: &'static str, otherwise: &'static str },
    /// The id of a client's connection.
    Client(usize),
}

/// How many commands a sequence has at least.
pub(crate) const STEPS_MIN: usize = 20;

/// The sequence of a seed.
pub(crate) fn sequence(seed: u64) -> Sequence {
    let mut draw = Gen { rng: Rng::new(seed), theme: Theme::All };
    let themes = [
        (34, Theme::Streams),
        (16, Theme::Lists),
        (10, Theme::Strings),
        (10, Theme::Collections),
        (8, Theme::Connections),
        (12, Theme::Scripts),
        (10, Theme::All),
    ];
    draw.theme = draw.rng.weighted(&themes);
    let clients = 2 + draw.rng.below(3);
    let protocols = (0..clients).map(|_| if draw.rng.chance(40) { 3 } else { 2 }).collect();
    let mut steps: Vec<Step> = Vec::new();
    draw.begin(clients, &mut steps);
    let length = steps.len() + STEPS_MIN + draw.rng.below(12);
    while steps.len() < length {
        let client = draw.rng.below(clients);
        if draw.rng.chance(4) {
            draw.transaction(client, clients, &mut steps);
        } else {
            let draft = draw.draft(clients);
            steps.push(draft.step(client));
        }
    }
    let password = matches!(draw.theme, Theme::Connections | Theme::All) && draw.rng.chance(20);
    if password {
        draw.log_in(&mut steps);
    }
    if draw.rng.chance(8) {
        draw.make_trouble(&mut steps);
    }
    Sequence { protocols, password, steps }
}

/// What most commands of a sequence are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theme {
    Streams,
    Lists,
    Strings,
    Collections,
    Connections,
    Scripts,
    All,
}

/// What draws.
struct Gen {
    rng: Rng,
    theme: Theme,
}

/// A family of commands, and how they are drawn.
type Family = fn(&mut Gen, usize) -> Draft;

impl Gen {
    /// One command, or the next of several that belong together.
    fn draft(&mut self, clients: usize) -> Draft {
        let families: [(u32, Family); 8] = match self.theme {
            Theme::Streams => families([80, 2, 1, 2, 1, 3, 4, 3]),
            Theme::Lists => families([3, 75, 3, 6, 2, 3, 4, 3]),
            Theme::Strings => families([2, 3, 50, 30, 4, 3, 4, 2]),
            Theme::Collections => families([2, 3, 3, 12, 75, 2, 3, 1]),
            Theme::Connections => families([8, 12, 3, 6, 2, 60, 8, 2]),
            Theme::Scripts => families([40, 8, 4, 4, 4, 2, 2, 40]),
            Theme::All => families([25, 15, 10, 15, 15, 10, 5, 5]),
        };
        let family = self.rng.weighted(&families);
        family(self, clients)
    }

    /// Groups that most of what follows can work with.
    fn begin(&mut self, clients: usize, steps: &mut Vec<Step>) {
        let wanted = match self.theme {
            Theme::Streams => 85,
            Theme::Scripts => 75,
            _ => 20,
        };
        for key in ["s1", "s1", "s2", "s3"] {
            if !self.rng.chance(wanted) {
                continue;
            }
            let client = self.rng.below(clients);
            let group = if self.rng.chance(80) { "g1" } else { "g2" };
            let create = Draft::new("XGROUP CREATE").text(key).text(group).text("0").option("MKSTREAM");
            steps.push(create.step(client));
            for nth in 1..=self.rng.below(5) {
                let id = if self.rng.chance(50) { "*".to_string() } else { format!("1-{nth}") };
                let named = if id == "*" { "*" } else { "explicit" };
                steps.push(Draft::new("XADD").text(key).named(named).text(&id).text("f").text("x").step(client));
            }
        }
    }

    /// Most clients log in sooner or later.
    fn log_in(&mut self, steps: &mut Vec<Step>) {
        for client in 0..4 {
            if self.rng.chance(75) {
                let at = self.rng.below(4);
                steps.insert(at, Draft::new("AUTH").text(PASSWORD).step(client));
            }
        }
    }

    /// From some command on something is wrong with the server, and from a later one on nothing is.
    fn make_trouble(&mut self, steps: &mut [Step]) {
        let trouble = if self.rng.chance(70) { Trouble::MemoryFull } else { Trouble::NoReplicas };
        // The model counts data only: full memory takes data, which this would remove.
        for step in steps.iter_mut().filter(|step| step.names[0] == "FLUSHALL") {
            *step = Draft::new("DBSIZE").step(step.client);
        }
        let from = self.rng.below(steps.len());
        let until = from + self.rng.below(steps.len() - from);
        steps[until].trouble = Some(Trouble::None);
        steps[from].trouble = Some(trouble);
        steps[from].names.push(format!("{trouble:?}"));
    }

    /// `MULTI`, some commands and the end of it, sometimes after `WATCH` and with others in between.
    fn transaction(&mut self, client: usize, clients: usize, steps: &mut Vec<Step>) {
        if self.rng.chance(35) {
            let key = self.any_key();
            steps.push(Draft::new("WATCH").text(key).step(client));
        }
        if self.rng.chance(25) {
            let other = self.rng.below(clients);
            steps.push(self.draft(clients).step(other));
        }
        steps.push(Draft::new("MULTI").step(client));
        for _ in 0..1 + self.rng.below(4) {
            let who = if self.rng.chance(15) { self.rng.below(clients) } else { client };
            steps.push(self.draft(clients).step(who));
        }
        let end = if self.rng.chance(80) { "EXEC" } else { "DISCARD" };
        steps.push(Draft::new(end).step(client));
    }

    /// A key of any type.
    fn any_key(&mut self) -> &'static str {
        self.rng.pick(&["s1", "s1", "s2", "s3", "l1", "l2", "l3", "a1", "a2", "h1", "z1", "t1"])
    }

    /// A key of one type, or rarely of any.
    fn key_of(&mut self, own: &[&'static str]) -> &'static str {
        if self.rng.chance(6) { self.any_key() } else { self.rng.pick(own) }
    }

    /// A value, for whatever has one.
    fn value(&mut self) -> &'static str {
        self.rng.pick(&["x", "y", "z", "1", "2", "-3", "10", "", "x y", "3.5", "\u{e9}\0\r\n", "abc"])
    }

    /// A whole number as an argument, rarely something else.
    fn number(&mut self) -> &'static str {
        if self.rng.chance(3) {
            return self.rng.pick(&[
                "abc",
                "1.5",
                "",
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775808",
                " 1",
            ]);
        }
        self.rng.pick(&["0", "1", "2", "3", "4", "5", "10", "-1", "-2", "-3", "-100"])
    }

    /// A number that counts something.
    fn count(&mut self) -> &'static str {
        if self.rng.chance(4) { self.number() } else { self.rng.pick(&["1", "1", "2", "3", "5", "10", "100", "0"]) }
    }

    /// A time to live that cannot end while a sequence runs, or that has.
    fn ttl(&mut self, unit: &[&'static str]) -> &'static str {
        if self.rng.chance(8) {
            self.rng.pick(&["0", "-1", "-100", "abc", "9223372036854775807", "1.5"])
        } else {
            self.rng.pick(unit)
        }
    }
}

fn families(weights: [u32; 8]) -> [(u32, Family); 8] {
    let all: [Family; 8] = [
        streams::draft,
        lists::draft,
        keys::strings,
        keys::generic,
        collections::draft,
        connection::draft,
        connection::server,
        scripts::draft,
    ];
    std::array::from_fn(|at| (weights[at], all[at]))
}

/// A command while it is put together.
struct Draft {
    words: Vec<Word>,
    names: Vec<String>,
    timed: bool,
}

impl Draft {
    /// A command by its name; of one with subcommands, both words.
    fn new(name: &str) -> Self {
        let words = name.split(' ').map(|word| Word::Text(Bytes::copy_from_slice(word.as_bytes()))).collect();
        Self { words, names: vec![name.to_string()], timed: false }
    }

    /// An argument.
    fn text(mut self, text: impl AsRef<[u8]>) -> Self {
        self.words.push(Word::Text(Bytes::copy_from_slice(text.as_ref())));
        self
    }

    /// An argument that may be an id.
    fn word(mut self, word: Word) -> Self {
        self.words.push(word);
        self
    }

    /// An option, which is counted.
    fn option(self, option: &str) -> Self {
        self.named(option).text(option)
    }

    /// Something that is counted as an option, and is not an argument by itself.
    fn named(mut self, option: &str) -> Self {
        self.names.push(format!("{} {option}", self.names[0]));
        self
    }

    /// It waits for a moment only.
    fn ends_soon(mut self) -> Self {
        self.names.push("timeout".into());
        self.timed = true;
        self
    }

    fn step(self, client: usize) -> Step {
        Step { client, words: self.words, names: self.names, timed: self.timed, trouble: None }
    }
}

/// The generator of pseudo-random numbers: `SplitMix64`.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        let mut rng = Self(seed);
        // Neighbouring seeds are to have nothing in common.
        rng.0 = rng.next() ^ seed.rotate_left(32);
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }

    /// True in this many of a hundred cases.
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn weighted<T: Copy>(&mut self, from: &[(u32, T)]) -> T {
        let sum: u32 = from.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(sum as usize) as u32;
        for (weight, item) in from {
            if at < *weight {
                return *item;
            }
            at -= weight;
        }
        unreachable!("the weights sum up")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_and_another_is_another() {
        let text = |seed| format!("{:?}", sequence(seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        assert!((0..500).all(|seed| sequence(seed).steps.len() >= STEPS_MIN));
    }
}
