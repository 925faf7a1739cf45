//! A deterministic simulator for Flota.

pub mod broker;
