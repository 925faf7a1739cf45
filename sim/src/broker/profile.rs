//! Which server is modelled, and how it is set up.

/// What tells one server version or configuration from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `redis_version` as `INFO` shows it, three numbers.
    pub version: [u32; 3],
    /// A Valkey server: `INFO` says so; the behaviour is that of the Redis version it descends from, 7.2.
    pub valkey: bool,
    /// Where it listens, as `INFO` shows it.
    pub port: u16,
    /// Lives inside of a program: `INFO` says `flota_embedded:1`.
    pub embedded: bool,
    /// `requirepass`.
    pub password: Option<String>,
    /// `maxmemory` and its policy.
    pub memory: Memory,
    /// `maxclients`.
    pub clients_max: u32,
    /// How often the server looks after timeouts of blocked connections, in microseconds: `1s / hz`.
    pub tick_us: u64,
    /// What `INFO persistence` and `CONFIG GET` say.
    pub appendonly: bool,
    /// `always`, `everysec` or `no`.
    pub appendfsync: &'static str,
}

/// Memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes; zero is no limit. The model counts the bytes of keys and values and a constant per entry.
    pub max: u64,
    /// `noeviction` or another policy's name; only `noeviction` is acted upon.
    pub policy: &'static str,
}

impl Profile {
    /// Redis 7.0.15 with its defaults and an append-only file.
    #[must_use]
    pub fn redis_7_0() -> Self {
        Self {
            version: [7, 0, 15],
            valkey: false,
            port: 6379,
            embedded: false,
            password: None,
            memory: Memory { max: 0, policy: "noeviction" },
            clients_max: 10_000,
            tick_us: 100_000,
            appendonly: true,
            appendfsync: "everysec",
        }
    }

    /// Redis 6.2.
    #[must_use]
    pub fn redis_6_2() -> Self {
        Self { version: [6, 2, 5], ..Self::redis_7_0() }
    }

    /// Valkey 8.1, which calls itself Redis 7.2.4 to its clients.
    #[must_use]
    pub fn valkey_8_1() -> Self {
        Self { version: [7, 2, 4], valkey: true, ..Self::redis_7_0() }
    }

    /// Whether the behaviour is that of this Redis version or a later one.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.version[0], self.version[1]) >= (major, minor)
    }
}
