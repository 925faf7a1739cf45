#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::{Context, Poll};

use super::{Events, FleetEvent, FleetView, Queue};
use crate::config::Endpoint;
use crate::driver::client::BrokerInfo;
use crate::driver::fake::Wakes;
use crate::id::{BrokerId, DeliveryId, Id, SubId};
use crate::output::{Delivery, Warning};
use crate::reply::EntriesBuilder;
use crate::time::Mono;

fn delivery(n: u32) -> Delivery {
    Delivery {
        delivery: DeliveryId::from_parts(n, 0),
        sub: SubId::from_parts(0, 0),
        broker: BrokerId::from_parts(0, 0),
        partition: 0,
        retry: false,
        deliveries: 1,
        attempt: 1,
        batch: Arc::new(EntriesBuilder::new().finish()),
        index: 0,
    }
}

fn pushed(queue: &Queue, deliveries: core::ops::Range<u32>) {
    queue.push(&mut deliveries.map(delivery).collect(), &mut Vec::new());
}

#[test]
fn a_queue_hands_over_in_order_and_wakes_once() {
    let (wakes, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    let queue = Queue::new();
    assert!(queue.poll_next(&mut cx).is_pending());
    pushed(&queue, 0..2);
    pushed(&queue, 2..3);
    assert_eq!(wakes.take(), 1);
    for n in 0..3 {
        assert!(matches!(queue.poll_next(&mut cx), Poll::Ready(Some(found)) if found.delivery.index() == n));
    }
    assert!(queue.poll_next(&mut cx).is_pending());
    queue.end();
    assert_eq!(wakes.take(), 1);
    assert!(matches!(queue.poll_next(&mut cx), Poll::Ready(None)));
}

#[test]
fn a_batch_is_bounded_and_brings_what_is_overdue() {
    let (wakes, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    let queue = Queue::new();
    let (mut batch, mut overdue) = (VecDeque::new(), Vec::new());
    pushed(&queue, 0..5);
    assert_eq!(queue.poll_batch(&mut cx, 3, &mut batch, &mut overdue), Poll::Ready(true));
    assert_eq!(queue.poll_batch(&mut cx, 9, &mut batch, &mut overdue), Poll::Ready(true));
    assert_eq!(batch.iter().map(|found| found.delivery.index()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(queue.poll_batch(&mut cx, 9, &mut batch, &mut overdue), Poll::Pending);
    queue.push(&mut Vec::new(), &mut [DeliveryId::from_parts(1, 0)].to_vec());
    assert_eq!(wakes.take(), 1);
    assert_eq!(queue.poll_batch(&mut cx, 9, &mut batch, &mut overdue), Poll::Ready(true));
    assert_eq!(overdue, [DeliveryId::from_parts(1, 0)]);
    queue.end();
    assert_eq!(queue.poll_batch(&mut cx, 9, &mut batch, &mut overdue), Poll::Ready(false));
}

#[test]
fn what_nobody_took_can_be_taken_back() {
    let (_, waker) = Wakes::new();
    let queue = Queue::new();
    pushed(&queue, 0..3);
    assert!(queue.poll_next(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(queue.reclaim().len(), 2);
    assert!(queue.poll_next(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_slow_watcher_loses_the_oldest_and_hears_how_many() {
    let (_, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    let events = Events::new();
    let warning = |count| FleetEvent::Warning(Arc::new(Warning::Dead { topic: "t".into(), group: "g".into(), count }));
    let most = u32::try_from(Events::KEPT).unwrap();
    (0..most + 2).for_each(|n| events.push(warning(n)));
    assert!(matches!(events.poll_next(&mut cx), Poll::Ready(Some(FleetEvent::Skipped(2)))));
    let Poll::Ready(Some(FleetEvent::Warning(first))) = events.poll_next(&mut cx) else { panic!("no event") };
    assert!(matches!(*first, Warning::Dead { count: 2, .. }));
}

#[test]
fn a_view_wakes_who_waits_for_a_change() {
    let (wakes, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    let view = FleetView::new();
    let any = |fleet: &[BrokerInfo]| !fleet.is_empty();
    assert!(view.poll_until(&mut cx, any).is_pending());
    assert!(view.poll_until(&mut cx, any).is_pending());
    view.replace(Vec::new());
    assert_eq!(wakes.take(), 1, "one task waits once");
    assert!(view.poll_until(&mut cx, any).is_pending());
    let broker = BrokerInfo {
        id: BrokerId::from_parts(0, 0),
        guid: None,
        address: Endpoint::Name("a".into(), 1),
        ready: true,
        unready: None,
        leaving: false,
        announcements: 0,
        joined: Mono(0),
        is_static: true,
    };
    view.replace([broker].to_vec());
    assert_eq!(view.poll_until(&mut cx, any), Poll::Ready(true));
    view.replace(Vec::new());
    view.end();
    assert_eq!(view.poll_until(&mut cx, any), Poll::Ready(false));
}
