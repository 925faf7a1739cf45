//! tokio's sockets and timers as the driver wants them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use flota_core::config::Endpoint;
use flota_core::driver::net::{self, DialError};
use flota_core::driver::sockets::{Clock, SockRef, configure_stream};
use flota_core::time::{Mono, Now};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::{Instant, Sleep, sleep_until};

/// The runtime as a [`Net`](net::Net).
#[derive(Debug)]
pub struct Tokio {
    clock: Clock,
}

impl Tokio {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::new() }
    }
}

impl net::Net for Tokio {
    type Stream = Tcp;
    type Dial = Pin<Box<dyn Future<Output = io::Result<Tcp>> + Send>>;
    type Socket = Udp;
    type Alarm = Alarm;

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn dial(&mut self, to: &Endpoint) -> Self::Dial {
        let to = to.clone();
        Box::pin(async move {
            let stream = match to {
                Endpoint::Ip(address) => TcpStream::connect(address).await?,
                Endpoint::Name(host, port) => by_name(&host, port).await?,
            };
            configure_stream(SockRef::from(&stream))?;
            Ok(Tcp(stream))
        })
    }
}

/// The first of the host's addresses that answers.
async fn by_name(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await.map_err(|error| DialError::Unresolved(error.to_string()))?;
    let mut last = io::Error::from(DialError::Unresolved("it has no address".into()));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A plain connection.
#[derive(Debug)]
pub struct Tcp(TcpStream);

impl net::Stream for Tcp {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut impl BufMut) -> Poll<io::Result<usize>> {
        tokio_util::io::poll_read_buf(Pin::new(&mut self.0), cx, into)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }
}

/// The announcement socket.
#[derive(Debug)]
pub struct Udp(pub(crate) UdpSocket);

impl net::Socket for Udp {
    fn poll_recv(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(into);
        let from = ready!(self.0.poll_recv_from(cx, &mut buffer))?;
        Poll::Ready(Ok((buffer.filled().len(), from)))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, payload: &[u8], to: SocketAddr) -> Poll<io::Result<usize>> {
        self.0.poll_send_to(cx, payload, to)
    }
}

/// One timer, which is moved only when it would be late.
///
/// The driver's deadline moves on with nearly every message. A timer that stays where it was and finds, when it fires,
/// that it was early costs a turn now and then; moving it each time costs the runtime's timer lock every time.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    sleep: Option<Pin<Box<Sleep>>>,
    set_to: Mono,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::new(), sleep: None, set_to: Mono::NEVER }
    }

    /// The driver's clock and the timer's are two clocks: only distances carry over.
    fn set(&mut self, at: Mono, now: Mono) {
        const FAR: Duration = Duration::from_secs(24 * 3600);
        let at_most = at.since(now).min(FAR);
        let instant = Instant::now() + at_most;
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(instant),
            None => self.sleep = Some(Box::pin(sleep_until(instant))),
        }
        self.set_to = now + at_most;
    }
}

impl net::Alarm for Alarm {
    fn poll_at(&mut self, cx: &mut Context<'_>, at: Mono) -> Poll<()> {
        if self.sleep.is_none() || at < self.set_to {
            let now = self.clock.now().mono;
            // A timer set to now is not ready now, and would be set anew with every poll.
            if at <= now {
                return Poll::Ready(());
            }
            self.set(at, now);
        }
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
            }
            let now = self.clock.now().mono;
            if at <= now {
                return Poll::Ready(());
            }
            self.set(at, now);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::future::poll_fn;

    use flota_core::driver::net::{Alarm as _, Net as _};

    use super::*;

    #[tokio::test]
    async fn an_alarm_is_never_early_and_moves_both_ways() {
        let (clock, mut alarm) = (Clock::new(), Alarm::new());
        let now = clock.now().mono;
        let (soon, later) = (now + Duration::from_millis(20), now + Duration::from_millis(40));
        let far = now + Duration::from_secs(3600);
        for at in [far, soon, later] {
            let polled = poll_fn(|cx| Poll::Ready(alarm.poll_at(cx, at)));
            assert!(polled.await.is_pending());
        }
        let patience = Duration::from_secs(20);
        tokio::time::timeout(patience, poll_fn(|cx| alarm.poll_at(cx, later))).await.unwrap();
        assert!(clock.now().mono >= later);
        // What is overdue is due at once, also when the timer was later than that.
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(cx, soon))).await.is_ready());
        let (past, future) = (clock.now().mono, clock.now().mono + patience);
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(cx, future))).await.is_pending());
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll_at(cx, past))).await.is_ready());
    }

    #[tokio::test]
    async fn what_does_not_resolve_is_told_from_what_refuses() {
        let mut net = Tokio::new();
        let error = net.dial(&Endpoint::Name("no-such-host.invalid".into(), 1)).await.unwrap_err();
        assert!(matches!(error.get_ref().and_then(|e| e.downcast_ref()), Some(DialError::Unresolved(_))), "{error}");
        let error = net.dial(&Endpoint::Ip(([127, 0, 0, 1], 1).into())).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
