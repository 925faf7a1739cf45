//! Which code this is.

/// The version, and the commit if whoever built it said so.
pub(crate) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    option_env!("FLOTA_COMMIT")
        .map_or_else(|| format!("flota-sim {version}"), |commit| format!("flota-sim {version}, commit {commit}"))
}
