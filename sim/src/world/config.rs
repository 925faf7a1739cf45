//! Engines and subscriptions as the plan configures them.

use std::sync::Arc;
use std::time::Duration;

use flota_core::Engine;
use flota_core::config::{Config, Discovery, Endpoint};
use flota_core::id::Id;
use flota_core::op::Sub;
use flota_core::topic::TopicSpec;

use super::kernel::Kernel;
use super::net::broker_address;
use crate::plan::{Consume, Knobs, Plan};
use crate::seen::TraceHash;
#[cfg(feature = "mutants")]
use crate::seen::{Host, What};

pub(crate) fn engine_config(plan: &Plan, service: u32) -> Config {
    let knobs = &plan.knobs;
    let mut config = Config::discover();
    let allow = knobs.allow.iter().filter_map(|network| network.parse().ok()).collect();
    config.discovery = Some(Discovery { allow, ..Discovery::default() });
    config.brokers = plan
        .brokers
        .iter()
        .zip(0u32..)
        .filter(|(broker, _)| broker.interval_ms == 0)
        .map(|(_, index)| Endpoint::Ip(broker_address(index, false)))
        .collect();
    config.service = Some(format!("s{service}"));
    config.timing.block = Duration::from_millis(knobs.block_ms);
    config.timing.send_init = Duration::from_millis(knobs.send_init_ms);
    config.timing.backoff_cap = Duration::from_millis(knobs.backoff_cap_ms);
    config.timing.response = Duration::from_millis(knobs.response_ms);
    config.limits.pipeline = knobs.pipeline;
    config.limits.brokers = knobs.fleet_max;
    config.limits.backlog_ops = knobs.backlog_ops;
    set_mutant(&mut config, knobs);
    config
}

pub(crate) fn subscription(knobs: &Knobs, topic: Arc<TopicSpec>, consume: &Consume) -> Sub {
    let mut sub = Sub::new(topic, &Plan::group(consume.group));
    sub.in_flight = consume.in_flight;
    sub.claim_idle = Duration::from_millis(knobs.claim_idle_ms);
    sub.claim_period = Duration::from_millis(knobs.claim_period_ms);
    sub.max_deliveries = knobs.max_deliveries;
    sub.handler_timeout = Duration::from_millis(knobs.handler_timeout_ms);
    sub.retry_base = Duration::from_millis(knobs.retry_base_ms);
    sub.retry_cap = Duration::from_millis(knobs.retry_cap_ms);
    sub
}

#[cfg(feature = "mutants")]
fn set_mutant(config: &mut Config, knobs: &Knobs) {
    config.mutant = knobs.mutant.as_deref().and_then(|name| name.parse().ok());
}

#[cfg(not(feature = "mutants"))]
fn set_mutant(_: &mut Config, _: &Knobs) {}

/// What an engine shows of its first members, hashed.
pub(crate) fn fleet_digest(engine: &Engine) -> u64 {
    let mut digest = TraceHash::default();
    for view in engine.fleet().take(32) {
        digest.word(u64::from(view.id.index()) << 32 | u64::from(view.id.generation()));
        if let Endpoint::Ip(std::net::SocketAddr::V4(v4)) = view.address {
            digest.word(u64::from(u32::from(*v4.ip())) << 16 | u64::from(v4.port()));
        }
        digest.bytes(view.guid.map(|guid| guid.to_bytes()).unwrap_or_default().as_slice());
        digest.word(u64::from(view.ready) | u64::from(view.leaving) << 1);
        digest.word(view.announcements);
    }
    digest.value()
}

/// Lets the engine count itself.
#[cfg(feature = "mutants")]
pub(crate) fn audit(engine: &Engine, service: u32, k: &mut Kernel) {
    k.see(Host::Service(service), What::Audited(engine.audit()));
}

#[cfg(not(feature = "mutants"))]
pub(crate) fn audit(_: &Engine, _: u32, _: &mut Kernel) {}
