//! Throughput of sending and consuming, next to hand-pipelined loops in the same run.
//!
//! ```sh
//! cargo run --release -p flota-benches --bin throughput -- [--rounds 7] [--messages 200000] [--sizes 64,1024]
//! ```
//!
//! Starts its own `redis-server`, without persistence. Every contender runs as a process of its own, pinned: once with
//! the server on another core, which is what a deployment looks like, and once on the server's core, which is the
//! strict test of CPU per message (an unpinned run on two cores flips between the two). Contenders take turns inside a
//! round; the ratio is formed inside the round, and the median over rounds is printed.
//!
//! *raw send*: pipelines of 100 `XADD` with one field, one round trip each. *raw consume*: `XREADGROUP COUNT 100`, the
//! `XACK` of the batch before in the same pipeline. *flota send*: 256 tasks, each awaiting its own message.
//! *flota consume*: `run` with 256 in flight, a handler and an acknowledgement per message.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flota_tokio::{Config, Message, Topic, connect};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const SENDERS: u64 = 256;
const IN_FLIGHT: u32 = 256;
const RAW_BATCH: usize = 100;
const TOPIC: &str = "bench";
const STREAM: &str = "stream:topic:bench:p:0";
const GROUP: &str = "g";

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "--child") {
        return child(&args[1..]);
    }
    let option = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let number = |name: &str, default: u64| option(name).map_or(Ok(default), |text| text.parse());
    let rounds = number("--rounds", 7)?;
    let messages = number("--messages", 200_000)?;
    let sizes = option("--sizes").map_or("64,1024", String::as_str);
    let sizes = sizes.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    println!(
        "{:<9}{:>6}  {:<10}{:<16}{:>10}{:>10}{:>8}",
        "what", "bytes", "cores", "runtime", "raw/s", "flota/s", "ratio"
    );
    for (cores, server_core, client_core) in [("own", 0, 1), ("shared", 1, 1)] {
        let server = Server::start(server_core)?;
        for what in ["send", "consume"] {
            for &size in &sizes {
                for runtime in ["current-thread", "two-workers"] {
                    compare(&server, what, size, cores, client_core, runtime, messages, rounds)?;
                }
            }
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "one call site, one row of the table")]
fn compare(
    server: &Server,
    what: &str,
    size: u64,
    cores: &str,
    client_core: u32,
    runtime: &str,
    messages: u64,
    rounds: u64,
) -> Outcome<()> {
    let (mut raws, mut flotas, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms caches and the server's allocator, and does not count.
    for round in 0..=rounds {
        let raw = server.run(client_core, &["raw", what, runtime], size, messages)?;
        let flota = server.run(client_core, &["flota", what, runtime], size, messages)?;
        if round > 0 {
            raws.push(raw);
            flotas.push(flota);
            ratios.push(flota / raw);
        }
    }
    let (raw, flota, ratio) = (median(raws), median(flotas), median(ratios));
    println!("{what:<9}{size:>6}  {cores:<10}{runtime:<16}{raw:>10.0}{flota:>10.0}{ratio:>8.2}");
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// A server of this run, stopped by its process id.
struct Server {
    process: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl Server {
    fn start(core: u32) -> Outcome<Self> {
        let port =
            (20_000..32_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).ok_or("no free port")?;
        let folder = std::env::temp_dir().join(format!("flota-bench-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let mut process = Command::new("taskset")
            .args(["-c", &core.to_string(), "redis-server", "--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output of redis-server")?;
        let mut lines = BufReader::new(output).lines();
        if !lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ready to accept connections")) {
            return Err("redis-server ended before it was ready".into());
        }
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Self { process, port, folder })
    }

    /// One contender's messages per second.
    fn run(&self, core: u32, which: &[&str], size: u64, messages: u64) -> Outcome<f64> {
        let output = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(std::env::current_exe()?)
            .arg("--child")
            .args(which)
            .args([self.port.to_string(), size.to_string(), messages.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        text.trim().parse().map_err(|_| format!("{which:?} printed {text:?}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to stop.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn child(args: &[String]) -> Outcome<()> {
    let [contender, what, runtime, port, size, messages] = args else { return Err("six arguments".into()) };
    let (size, messages) = (size.parse()?, messages.parse()?);
    let runtime = if runtime == "current-thread" {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
    };
    let at = format!("127.0.0.1:{port}");
    let rate = runtime.block_on(async {
        // Spawned, because the thread that blocks is not one of the workers.
        let task = match (contender.as_str(), what.as_str()) {
            ("raw", "send") => tokio::spawn(raw_send(at, size, messages)),
            ("raw", _) => tokio::spawn(raw_consume(at, size, messages)),
            (_, "send") => tokio::spawn(flota_send(at, size, messages)),
            _ => tokio::spawn(flota_consume(at, size, messages)),
        };
        task.await?
    })?;
    println!("{rate}");
    Ok(())
}

async fn raw(at: &str) -> Outcome<redis::aio::MultiplexedConnection> {
    Ok(redis::Client::open(format!("redis://{at}"))?.get_multiplexed_async_connection().await?)
}

async fn raw_fill(at: &str, size: usize, messages: u64, fields: &[&str]) -> Outcome<f64> {
    let mut connection = raw(at).await?;
    let body = vec![b'x'; size];
    let began = Instant::now();
    let mut left = messages;
    while left > 0 {
        let batch = left.min(RAW_BATCH as u64);
        let mut pipeline = redis::Pipeline::with_capacity(RAW_BATCH);
        for _ in 0..batch {
            let command = pipeline.cmd("XADD").arg(STREAM).arg("*").arg(fields[0]).arg(&body[..]);
            for extra in &fields[1..] {
                command.arg(*extra).arg("0190163d-8694-739b-aea5-966c26f8ad91");
            }
            command.ignore();
        }
        let () = pipeline.query_async(&mut connection).await?;
        left -= batch;
    }
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

async fn flush(at: &str) -> Outcome<()> {
    let () = redis::cmd("FLUSHALL").query_async(&mut raw(at).await?).await?;
    Ok(())
}

async fn raw_send(at: String, size: usize, messages: u64) -> Outcome<f64> {
    flush(&at).await?;
    raw_fill(&at, size, messages, &["p"]).await
}

async fn raw_consume(at: String, size: usize, messages: u64) -> Outcome<f64> {
    flush(&at).await?;
    raw_fill(&at, size, messages, &["p"]).await?;
    let mut connection = raw(&at).await?;
    let () = redis::cmd("XGROUP").arg("CREATE").arg(STREAM).arg(GROUP).arg("0").query_async(&mut connection).await?;
    let began = Instant::now();
    let (mut got, mut acks) = (0, Vec::new());
    while got < messages {
        let mut pipeline = redis::Pipeline::with_capacity(2);
        if !acks.is_empty() {
            pipeline.cmd("XACK").arg(STREAM).arg(GROUP).arg(&acks).ignore();
        }
        let read = pipeline.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg("c").arg("COUNT").arg(RAW_BATCH);
        read.arg("STREAMS").arg(STREAM).arg(">");
        let (reply,): (redis::streams::StreamReadReply,) = pipeline.query_async(&mut connection).await?;
        acks = reply.keys.into_iter().flat_map(|key| key.ids).map(|entry| entry.id).collect();
        got += acks.len() as u64;
    }
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

async fn flota_topic(at: &str) -> Outcome<Topic> {
    let client = connect(Config::brokers([at])?).await?;
    client.ready().await?;
    Ok(client.topic(TOPIC))
}

async fn flota_send(at: String, size: usize, messages: u64) -> Outcome<f64> {
    flush(&at).await?;
    let topic = flota_topic(&at).await?;
    let body = bytes::Bytes::from(vec![b'x'; size]);
    let left = Arc::new(AtomicU64::new(messages));
    let began = Instant::now();
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (topic, body, left) = (topic.clone(), body.clone(), left.clone());
            tokio::spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    topic.send(Message::new(body.clone())).await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for sender in senders {
        sender.await??;
    }
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

async fn flota_consume(at: String, size: usize, messages: u64) -> Outcome<f64> {
    flush(&at).await?;
    raw_fill(&at, size, messages, &["payload", "id"]).await?;
    let topic = flota_topic(&at).await?;
    let handled = Arc::new(AtomicU64::new(0));
    let done = Arc::new(tokio::sync::Notify::new());
    let began = Instant::now();
    let run = topic.group(GROUP).in_flight(IN_FLIGHT).run({
        let (handled, done) = (handled.clone(), done.clone());
        move |_job| {
            if handled.fetch_add(1, Ordering::Relaxed) + 1 == messages {
                done.notify_one();
            }
            std::future::ready(Ok::<(), std::convert::Infallible>(()))
        }
    });
    let stopper = run.stopper();
    let task = tokio::spawn(run);
    done.notified().await;
    let elapsed = began.elapsed();
    stopper.stop();
    task.await??;
    Ok(messages as f64 / elapsed.as_secs_f64())
}
