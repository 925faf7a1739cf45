//! A configuration from the environment: the same variables for services and for the command line.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::str::FromStr;
use core::time::Duration;

use crate::config::{Config, ConfigError, Credentials, Discovery, Timing};

#[cfg(test)]
mod tests;

impl Config {
    /// What the process's environment says.
    ///
    /// | variable | meaning |
    /// | --- | --- |
    /// | `FLOTA_BROKERS` | a fixed fleet: `HOST:PORT`, separated by commas |
    /// | `FLOTA_DISCOVER` | listen for announcements at this `ADDRESS:PORT`, or with `1` at `0.0.0.0:63000`; the default without brokers |
    /// | `DISABLE_CLUSTER_MANAGER`, `REDIS_CLUSTER` | a fixed fleet if the first is a number other than zero; the second is `HOST:PORT`, separated by commas, default `localhost:6379` |
    /// | `REDIS_BROADCAST_NAME` | the fleet's name; `*` accepts any |
    /// | `FLOTA_ALLOW` | networks an announced address may lie in, separated by commas |
    /// | `FLOTA_USER`, `FLOTA_PASSWORD` | credentials for every broker |
    /// | `IMQ_SEND_INIT_TIMEOUT` | how long a send waits for a broker, in milliseconds; 0 and what is no number mean 30 s |
    ///
    /// `FLOTA_*` come before the older names. An empty variable is as good as none.
    ///
    /// # Errors
    ///
    /// The first variable that does not say what it should.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Like [`from_env`](Self::from_env), from anything that knows variables.
    ///
    /// # Errors
    ///
    /// The first variable that does not say what it should.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = |name: &str| lookup(name).map(|value| value.trim().to_string()).filter(|value| !value.is_empty());
        let mut config = fleet(&env)?;
        if let Some(discovery) = &mut config.discovery {
            match env("REDIS_BROADCAST_NAME") {
                Some(any) if any == "*" => discovery.name = None,
                Some(name) => discovery.name = Some(name),
                None => {}
            }
            discovery.allow = env("FLOTA_ALLOW").map_or(Ok(Vec::new()), |networks| list(&networks))?;
        }
        config.credentials = credentials(&env)?;
        config.timing.send_init = send_init(env("IMQ_SEND_INIT_TIMEOUT").as_deref());
        Ok(config)
    }
}

fn fleet(env: &impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let brokers = env("FLOTA_BROKERS").map_or(Ok(Vec::new()), |brokers| list(&brokers))?;
    let discovery = env("FLOTA_DISCOVER").map_or(Ok(None), |listen| discovery(&listen))?;
    if !brokers.is_empty() || discovery.is_some() {
        return Ok(Config { brokers, discovery, ..Config::default() });
    }
    if env("DISABLE_CLUSTER_MANAGER").is_some_and(|flag| is_number_other_than_zero(&flag)) {
        let brokers = env("REDIS_CLUSTER").map_or_else(|| list("localhost:6379"), |brokers| list(&brokers))?;
        return Ok(Config { brokers, ..Config::default() });
    }
    Ok(Config::discover())
}

fn discovery(listen: &str) -> Result<Option<Discovery>, ConfigError> {
    let flag = listen.to_ascii_lowercase();
    match flag.as_str() {
        "0" | "false" | "no" | "off" => Ok(None),
        "1" | "true" | "yes" | "on" => Ok(Some(Discovery::default())),
        _ => match listen.parse() {
            Ok(listen) => Ok(Some(Discovery { listen, ..Discovery::default() })),
            Err(_) => Err(ConfigError::new("discovery.listen", listen, "not ADDRESS:PORT with an IP address, nor 1")),
        },
    }
}

fn list<T: FromStr<Err = ConfigError>>(text: &str) -> Result<Vec<T>, ConfigError> {
    text.split([',', ' ']).filter(|item| !item.is_empty()).map(str::parse).collect()
}

fn credentials(env: &impl Fn(&str) -> Option<String>) -> Result<Option<Arc<Credentials>>, ConfigError> {
    let user = env("FLOTA_USER");
    match (user, env("FLOTA_PASSWORD")) {
        (user, Some(password)) => Ok(Some(Arc::new(Credentials { user: user.unwrap_or_default(), password }))),
        (Some(user), None) => Err(ConfigError::new("credentials", &user, "FLOTA_USER needs FLOTA_PASSWORD")),
        (None, None) => Ok(None),
    }
}

/// As services in the field know it: nothing, zero and no number mean the default; a negative or broken one means that
/// a send does not wait.
fn send_init(text: Option<&str>) -> Duration {
    let default = Timing::default().send_init;
    let Some(text) = text else { return default };
    let (digits, negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let number =
        !(whole.is_empty() && part.is_empty()) && [whole, part].iter().all(|d| d.bytes().all(|b| b.is_ascii_digit()));
    let zero = [whole, part].iter().all(|d| d.bytes().all(|b| b == b'0'));
    if !number || zero {
        default
    } else if negative || !part.is_empty() {
        Duration::from_millis(1)
    } else {
        whole.parse().map_or(default, Duration::from_millis)
    }
}

fn is_number_other_than_zero(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    number && digits.bytes().any(|b| matches!(b, b'1'..=b'9'))
}
