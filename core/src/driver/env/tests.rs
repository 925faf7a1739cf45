use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use crate::config::{Config, ConfigError};

fn from(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::from_lookup(|name| {
        variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_string())
    })
}

fn brokers(config: &Config) -> Vec<String> {
    config.brokers.iter().map(ToString::to_string).collect()
}

#[test]
fn an_empty_environment_discovers() {
    let config = from(&[]).unwrap();
    let discovery = config.discovery.unwrap();
    assert_eq!(discovery.listen.to_string(), "0.0.0.0:63000");
    assert_eq!(discovery.name.as_deref(), Some("imq-broker"));
    assert_eq!(config.timing.send_init, Duration::from_secs(30));
    assert!(config.credentials.is_none());
}

#[test]
fn brokers_given_here_come_before_the_older_names() {
    let older = [("DISABLE_CLUSTER_MANAGER", "1"), ("REDIS_CLUSTER", "a:1,b:2")];
    let config = from(&older).unwrap();
    assert_eq!(brokers(&config), ["a:1", "b:2"]);
    assert!(config.discovery.is_none());

    let both = [older[0], older[1], ("FLOTA_BROKERS", "10.0.0.1:7, c:3")];
    let config = from(&both).unwrap();
    assert_eq!(brokers(&config), ["10.0.0.1:7", "c:3"]);
    assert!(config.discovery.is_none());

    let discover = [older[0], older[1], ("FLOTA_DISCOVER", "127.0.0.1:9000")];
    let config = from(&discover).unwrap();
    assert_eq!(brokers(&config), [""; 0]);
    assert_eq!(config.discovery.unwrap().listen.to_string(), "127.0.0.1:9000");
}

#[test]
fn the_older_list_is_dormant_without_its_switch() {
    for switch in ["", "0", "0.0", "no", "-"] {
        let config = from(&[("DISABLE_CLUSTER_MANAGER", switch), ("REDIS_CLUSTER", "a:1")]).unwrap();
        assert!(config.brokers.is_empty() && config.discovery.is_some(), "{switch}");
    }
    for switch in ["1", "-1", "2", "0.5"] {
        let config = from(&[("DISABLE_CLUSTER_MANAGER", switch)]).unwrap();
        assert_eq!(brokers(&config), ["localhost:6379"], "{switch}");
    }
}

#[test]
fn brokers_and_announcements_go_together() {
    let config = from(&[("FLOTA_BROKERS", "a:1"), ("FLOTA_DISCOVER", "1")]).unwrap();
    assert_eq!(brokers(&config), ["a:1"]);
    assert_eq!(config.discovery.unwrap().listen.port(), 63000);
}

#[test]
fn names_and_networks_restrict_what_is_believed() {
    let config = from(&[("REDIS_BROADCAST_NAME", "blue"), ("FLOTA_ALLOW", "10.0.0.0/8, fd00::/8")]).unwrap();
    let discovery = config.discovery.unwrap();
    assert_eq!(discovery.name.as_deref(), Some("blue"));
    assert_eq!(discovery.allow.len(), 2);
    assert_eq!(from(&[("REDIS_BROADCAST_NAME", "*")]).unwrap().discovery.unwrap().name, None);
}

#[test]
fn the_older_timeout_means_what_it_means_in_the_field() {
    let wait = |text| from(&[("IMQ_SEND_INIT_TIMEOUT", text)]).unwrap().timing.send_init.as_millis();
    for default in ["", "0", "-0", "0.0", "soon", "1e3", ".", "-", "99999999999999999999999"] {
        assert_eq!(wait(default), 30_000, "{default}");
    }
    assert_eq!(wait(" 1500 "), 1_500);
    for at_once in ["-1", "-2.5", "0.5", "1500.7"] {
        assert_eq!(wait(at_once), 1, "{at_once}");
    }
}

#[test]
fn credentials_come_in_pairs_or_as_a_password() {
    let given = |variables: &[_]| from(variables).unwrap().credentials.unwrap();
    assert_eq!(given(&[("FLOTA_PASSWORD", "p")]).user, "");
    assert_eq!(given(&[("FLOTA_USER", "u"), ("FLOTA_PASSWORD", "p")]).user, "u");
    assert_eq!(from(&[("FLOTA_USER", "u")]).unwrap_err().field, "credentials");
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(from(&[("FLOTA_BROKERS", "a")]).unwrap_err().value, "a");
    assert_eq!(from(&[("FLOTA_DISCOVER", "localhost")]).unwrap_err().field, "discovery.listen");
    assert_eq!(from(&[("FLOTA_ALLOW", "ten")]).unwrap_err().field, "allow");
}
