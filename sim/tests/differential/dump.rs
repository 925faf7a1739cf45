//! All data of both sides, compared by reading it.

use bytes::Bytes;

use crate::runner::Run;
use crate::wire::Wire;

/// Reads every key on both sides, whatever its type.
pub(crate) fn compare(run: &mut Run<'_, '_>) -> Result<(), String> {
    ask(run, &["DBSIZE"])?;
    let keys = ask(run, &["KEYS", "*"])?;
    for key in keys.items().unwrap_or_default() {
        let Some(key) = key.bytes() else { continue };
        let kind = read(run, "TYPE", key, &[])?;
        read(run, "PTTL", key, &[])?;
        match kind.bytes().map(Bytes::as_ref) {
            Some(b"string") => read(run, "GET", key, &[])?,
            Some(b"list") => read(run, "LRANGE", key, &["0", "-1"])?,
            Some(b"hash") => read(run, "HGETALL", key, &[])?,
            Some(b"set") => read(run, "SMEMBERS", key, &[])?,
            Some(b"zset") => read(run, "ZRANGE", key, &["0", "-1", "WITHSCORES"])?,
            Some(b"stream") => stream(run, key)?,
            other => return Err(format!("key {key:?} has the type {other:?}")),
        };
    }
    ask(run, &["CLIENT", "LIST"])?;
    Ok(())
}

fn stream(run: &mut Run<'_, '_>, key: &Bytes) -> Result<Wire, String> {
    read(run, "XRANGE", key, &["-", "+"])?;
    let words = ["XINFO", "STREAM"].map(|word| Bytes::from_static(word.as_bytes()));
    let more = ["FULL", "COUNT", "0"].map(|word| Bytes::from_static(word.as_bytes()));
    run.observe(&[&words[..], std::slice::from_ref(key), &more].concat())?;
    let groups = run.observe(&[Bytes::from_static(b"XINFO"), Bytes::from_static(b"GROUPS"), key.clone()])?;
    for group in groups.items().unwrap_or_default() {
        let Some(name) = group.items().and_then(|fields| fields.get(1)).and_then(Wire::bytes) else { continue };
        let consumers = [Bytes::from_static(b"XINFO"), Bytes::from_static(b"CONSUMERS"), key.clone(), name.clone()];
        run.observe(&consumers)?;
        run.observe(&[Bytes::from_static(b"XPENDING"), key.clone(), name.clone()])?;
        let end = ["-", "+", "1000"].map(|word| Bytes::from_static(word.as_bytes()));
        run.observe(&[&[Bytes::from_static(b"XPENDING"), key.clone(), name.clone()][..], &end].concat())?;
    }
    Ok(groups)
}

fn ask(run: &mut Run<'_, '_>, words: &[&'static str]) -> Result<Wire, String> {
    let args: Vec<_> = words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
    run.observe(&args)
}

fn read(run: &mut Run<'_, '_>, name: &'static str, key: &Bytes, more: &[&'static str]) -> Result<Wire, String> {
    let mut args = vec![Bytes::from_static(name.as_bytes()), key.clone()];
    args.extend(more.iter().map(|word| Bytes::from_static(word.as_bytes())));
    run.observe(&args)
}
