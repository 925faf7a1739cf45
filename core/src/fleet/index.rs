//! Who is known by an address, a GUID or a run id.
//!
//! Strangers choose addresses and GUIDs, so the tables are keyed with secrets from the seed: nobody outside can make
//! two entries meet. Nothing ever iterates over a table, so those secrets show in no output.

use core::hash::Hasher;
use core::net::IpAddr;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::member::Member;
use crate::announce::{Address, Guid, Host};
use crate::config::Endpoint;
use crate::id::{BrokerId, Slab};
use crate::rng::{Purpose, Rng, Seed};

/// The key of every table a stranger can fill.
#[derive(Clone, Copy)]
pub(super) struct HashKey(u64, u64);

impl HashKey {
    pub(super) fn new(seed: Seed) -> Self {
        let mut rng = Rng::new(seed, Purpose::TableKeys);
        Self(rng.next_u64(), rng.next_u64())
    }

    fn hash(self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(bytes);
        hasher.finish()
    }

    pub(super) fn hash_ip(self, ip: IpAddr) -> u64 {
        match ip {
            IpAddr::V4(ip) => self.hash(&ip.octets()),
            IpAddr::V6(ip) => self.hash(&ip.octets()),
        }
    }
}

/// An address as it is compared, borrowed from a datagram or an [`Endpoint`]. An IPv4-mapped IPv6 address is the IPv4
/// address: it leads to the same server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressKey<'a> {
    host: HostKey<'a>,
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HostKey<'a> {
    /// With the scope that a link-local address needs; 0 for all others.
    Ip(IpAddr, u32),
    Name(&'a str),
}

impl<'a> From<Address<'a>> for AddressKey<'a> {
    fn from(address: Address<'a>) -> Self {
        let host = match address.host {
            Host::V4(ip) => HostKey::Ip(IpAddr::V4(ip), 0),
            Host::V6(ip) => HostKey::Ip(IpAddr::V6(ip).to_canonical(), 0),
            Host::Name(name) => HostKey::Name(name),
        };
        Self { host, port: address.port.get() }
    }
}

impl<'a> From<&'a Endpoint> for AddressKey<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        match endpoint {
            Endpoint::Ip(address) => {
                let scope = if let core::net::SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 };
                Self { host: HostKey::Ip(address.ip().to_canonical(), scope), port: address.port() }
            }
            Endpoint::Name(name, port) => Self { host: HostKey::Name(name), port: *port },
        }
    }
}

impl AddressKey<'_> {
    /// The address to dial and to show. The only place where an announced address is copied.
    pub(super) fn to_endpoint(self) -> Endpoint {
        match self.host {
            HostKey::Ip(ip, _) => Endpoint::Ip((ip, self.port).into()),
            HostKey::Name(name) => Endpoint::Name(name.into(), self.port),
        }
    }

    fn hash(self, key: HashKey) -> u64 {
        let [high, low] = self.port.to_be_bytes();
        match self.host {
            HostKey::Ip(IpAddr::V4(ip), _) => {
                let [a, b, c, d] = ip.octets();
                key.hash(&[a, b, c, d, high, low])
            }
            HostKey::Ip(IpAddr::V6(ip), scope) => {
                let mut bytes = [0; 22];
                bytes[..16].copy_from_slice(&ip.octets());
                bytes[16..20].copy_from_slice(&scope.to_be_bytes());
                bytes[20..].copy_from_slice(&[high, low]);
                key.hash(&bytes)
            }
            HostKey::Name(name) => {
                let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
                hasher.write(name.as_bytes());
                hasher.write(&[0xff, high, low]);
                hasher.finish()
            }
        }
    }
}

/// Three tables into one slab of members.
pub(super) struct Index {
    key: HashKey,
    /// One entry per address of every member, departed ones included.
    addresses: HashTable<Entry>,
    guids: HashTable<GuidEntry>,
    /// One entry per member whose run id is known.
    runs: HashTable<Entry>,
}

/// Compared by what the member says, so that a name is held once. The hash is kept because one member can be found by
/// several.
struct Entry {
    hash: u64,
    broker: BrokerId,
}

struct GuidEntry {
    guid: Guid,
    /// The member that heard it first, of those that still hear it.
    first: BrokerId,
    /// At how many addresses it is heard, of all members.
    places: u32,
}

impl Index {
    pub(super) fn new(key: HashKey) -> Self {
        Self { key, addresses: HashTable::new(), guids: HashTable::new(), runs: HashTable::new() }
    }

    pub(super) fn by_address(&self, address: AddressKey<'_>, members: &Slab<BrokerId, Member>) -> Option<BrokerId> {
        let hash = address.hash(self.key);
        let is_it = |entry: &Entry| entry.hash == hash && members.get(entry.broker).is_some_and(|m| m.is_at(address));
        self.addresses.find(hash, is_it).map(|entry| entry.broker)
    }

    pub(super) fn add_address(&mut self, address: AddressKey<'_>, broker: BrokerId) {
        let hash = address.hash(self.key);
        self.addresses.insert_unique(hash, Entry { hash, broker }, |entry| entry.hash);
    }

    /// Nothing happens when the address is another member's.
    pub(super) fn remove_address(&mut self, address: AddressKey<'_>, broker: BrokerId) {
        remove(&mut self.addresses, address.hash(self.key), broker);
    }

    /// The member that heard the GUID first.
    pub(super) fn by_guid(&self, guid: Guid) -> Option<BrokerId> {
        self.guids.find(self.key.hash(&guid.to_bytes()), |entry| entry.guid == guid).map(|entry| entry.first)
    }

    /// At how many addresses the GUID is heard, of all members.
    pub(super) fn places_of(&self, guid: Guid) -> u32 {
        self.guids.find(self.key.hash(&guid.to_bytes()), |entry| entry.guid == guid).map_or(0, |entry| entry.places)
    }

    /// The GUID is heard at one address more.
    pub(super) fn add_guid(&mut self, guid: Guid, broker: BrokerId) {
        let key = self.key;
        let hash = key.hash(&guid.to_bytes());
        match self.guids.find_mut(hash, |entry| entry.guid == guid) {
            Some(entry) => entry.places += 1,
            None => {
                let rehash = |entry: &GuidEntry| key.hash(&entry.guid.to_bytes());
                self.guids.insert_unique(hash, GuidEntry { guid, first: broker, places: 1 }, rehash);
            }
        }
    }

    /// The GUID is heard at one address less: one that the member had until just now.
    pub(super) fn remove_guid(&mut self, guid: Guid, broker: BrokerId, members: &Slab<BrokerId, Member>) {
        let hash = self.key.hash(&guid.to_bytes());
        let Ok(mut found) = self.guids.find_entry(hash, |entry| entry.guid == guid) else {
            unreachable!("the GUID of a member is indexed");
        };
        let entry = found.get_mut();
        entry.places -= 1;
        if entry.places == 0 {
            found.remove();
        } else if entry.first == broker && members.get(broker).map_or(0, |m| m.places_of(guid)) < entry.places {
            // Others hear it too: a GUID of two brokers, which is somebody's mistake and rare. Making it on purpose
            // costs a newcomer's token for each member, so the scan is no lever.
            self.find_first(guid, members);
        }
    }

    /// Looks again who hears a GUID first, after addresses have changed hands.
    pub(super) fn find_first(&mut self, guid: Guid, members: &Slab<BrokerId, Member>) {
        let hearers = members.iter().filter_map(|(broker, member)| Some((member.first_heard(guid)?, broker)));
        if let Some((_, first)) = hearers.min()
            && let Some(entry) = self.guids.find_mut(self.key.hash(&guid.to_bytes()), |entry| entry.guid == guid)
        {
            entry.first = first;
        }
    }

    pub(super) fn by_run(&self, run: &str, members: &Slab<BrokerId, Member>) -> Option<BrokerId> {
        let hash = self.key.hash(run.as_bytes());
        let is_it = |entry: &Entry| members.get(entry.broker).is_some_and(|m| m.rest.run.as_deref() == Some(run));
        self.runs.find(hash, is_it).map(|entry| entry.broker)
    }

    pub(super) fn add_run(&mut self, run: &str, broker: BrokerId) {
        let hash = self.key.hash(run.as_bytes());
        self.runs.insert_unique(hash, Entry { hash, broker }, |entry| entry.hash);
    }

    pub(super) fn remove_run(&mut self, run: &str, broker: BrokerId) {
        remove(&mut self.runs, self.key.hash(run.as_bytes()), broker);
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(super) fn lens(&self) -> (usize, usize, usize) {
        (self.addresses.len(), self.guids.len(), self.runs.len())
    }
}

fn remove(table: &mut HashTable<Entry>, hash: u64, broker: BrokerId) {
    if let Ok(found) = table.find_entry(hash, |entry| entry.hash == hash && entry.broker == broker) {
        found.remove();
    }
}
