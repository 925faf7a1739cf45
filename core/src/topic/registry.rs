//! What is known of a topic's groups, carried from broker to broker.
//!
//! Each broker holds a registry of the groups of a topic, and a trim spares what a registered group has not read. A group
//! whose consumers are away must therefore be registered on a broker before anything is acknowledged there, also on one
//! that joined after they left: whoever talks to a broker brings along what it has learnt from the others.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::command::Arg;
use crate::reply::View;

/// The groups of every topic this process has heard of.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    topics: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Entry>>,
}

/// One group: deletion is a state, so that a broker that returns cannot bring a deleted group back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    version: u64,
    live: bool,
    start: Arc<str>,
}

impl Entry {
    /// `3 live 0`
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let version = words.next()?.parse().ok()?;
        let live = match words.next()? {
            "live" => true,
            "gone" => false,
            _ => return None,
        };
        Some(Self { version, live, start: words.next()?.into() })
    }

    fn text(&self) -> String {
        let state = if self.live { "live" } else { "gone" };
        alloc::format!("{} {state} {}", self.version, self.start)
    }

    /// Of two, the later one; alive wins a tie, so that all brokers end with the same word.
    fn rank(&self) -> (u64, bool) {
        (self.version, self.live)
    }
}

impl Registry {
    /// Learns what a broker answered: group and entry in turn. Whether any of it was news.
    pub(crate) fn learn(&mut self, topic: &str, registry: Option<View<'_>>) -> bool {
        let mut news = false;
        for (group, entry) in registry.and_then(View::pairs).into_iter().flatten() {
            let (Some(group), Some(entry)) = (group.as_str(), entry.as_str().and_then(Entry::parse)) else { continue };
            // Names that are none cannot have come from here, and would be spread.
            if super::is_name(group) {
                news |= self.put(topic, group, entry);
            }
        }
        news
    }

    /// A group that is consumed here. One that was deleted begins anew, under a later version.
    pub(crate) fn claim(&mut self, topic: &str, group: &str, start: &str) {
        let known = self.topics.get(topic).and_then(|groups| groups.get(group));
        let version = match known {
            Some(entry) if entry.live => return,
            Some(entry) => entry.version.saturating_add(1),
            None => 1,
        };
        self.put(topic, group, Entry { version, live: true, start: start.into() });
    }

    /// Whether a group is known to have been deleted.
    pub(crate) fn is_gone(&self, topic: &str, group: &str) -> bool {
        self.topics.get(topic).and_then(|groups| groups.get(group)).is_some_and(|entry| !entry.live)
    }

    /// Every group, as `ensure` takes it. `own` is the group that is consumed, with its start on that broker.
    pub(crate) fn args(&self, topic: &str, own: Option<(&Arc<str>, &str)>) -> Vec<Arg> {
        let mut args = Vec::new();
        for (group, entry) in self.topics.get(topic).into_iter().flatten() {
            let start = own.filter(|(name, _)| *name == group).map_or(&*entry.start, |(_, start)| start);
            args.push(Arg::Text(group.clone()));
            args.push(Arg::Text(Entry { start: start.into(), ..entry.clone() }.text().into()));
        }
        args
    }

    fn put(&mut self, topic: &str, group: &str, entry: Entry) -> bool {
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.into(), BTreeMap::new());
        }
        let Some(groups) = self.topics.get_mut(topic) else { return false };
        match groups.get_mut(group) {
            Some(known) if known.rank() >= entry.rank() => false,
            Some(known) => {
                *known = entry;
                true
            }
            None => {
                groups.insert(group.into(), entry);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ReplyBuilder;

    fn heard(registry: &mut Registry, pairs: &[(&str, &str)]) -> bool {
        let mut build = ReplyBuilder::new();
        build.array(2 * pairs.len() as u32);
        for (group, entry) in pairs {
            build.bulk(group.as_bytes()).bulk(entry.as_bytes());
        }
        registry.learn("t", Some(build.finish().view()))
    }

    fn args(registry: &Registry) -> Vec<String> {
        registry.args("t", None).iter().map(|arg| alloc::format!("{arg:?}")).collect()
    }

    #[test]
    fn what_one_broker_knows_is_told_to_the_others() {
        let mut registry = Registry::default();
        assert!(heard(&mut registry, &[("audit", "1 live 0"), ("billing", "2 live 5-0")]));
        assert!(!heard(&mut registry, &[("audit", "1 live 0")]), "no news");
        assert_eq!(args(&registry), ["audit", "1 live 0", "billing", "2 live 5-0"]);
    }

    #[test]
    fn the_later_version_wins_and_a_deleted_group_stays_deleted() {
        let mut registry = Registry::default();
        assert!(heard(&mut registry, &[("audit", "2 gone 0")]));
        assert!(!heard(&mut registry, &[("audit", "1 live 0")]), "an old broker came back");
        assert!(heard(&mut registry, &[("audit", "2 live 0")]), "alive wins a tie");
        assert!(heard(&mut registry, &[("audit", "3 gone 0")]));
        registry.claim("t", "audit", "0");
        assert_eq!(args(&registry), ["audit", "4 live 0"]);
    }

    #[test]
    fn nonsense_is_not_spread() {
        let mut registry = Registry::default();
        assert!(!heard(&mut registry, &[("a:b", "1 live 0"), ("c", "live"), ("d", "1 asleep 0"), ("e", "x live 0")]));
        assert!(args(&registry).is_empty());
    }
}
