//! `flota topic`: changes of a topic.

use serde::Serialize;

use crate::args::{GrowArgs, TopicArgs, TopicCommand};
use crate::error::{End, Failure, Outcome};
use crate::fleet::{CLOSE, Fleet, interruptible};
use crate::output;

pub(crate) async fn run(args: &TopicArgs) -> Outcome {
    match &args.command {
        TopicCommand::Grow(args) => grow(args).await,
    }
}

#[derive(Serialize)]
struct Grown<'a> {
    topic: &'a str,
    from: u32,
    to: u32,
    brokers: Vec<Broker>,
}

#[derive(Serialize)]
struct Broker {
    address: String,
    partitions: u32,
}

async fn grow(args: &GrowArgs) -> Outcome {
    interruptible(async {
        let fleet = Fleet::connect(&args.fleet).await?;
        fleet.settled().await?;
        let topic = &args.topic;
        let grown = fleet.client.admin().grow(topic, args.partitions).await;
        fleet.client.close(CLOSE).await?;
        let grown = grown.map_err(|why| Failure::new("topic_grow", format!("cannot let {topic} grow: {why}")))?;
        if args.json {
            let brokers = grown.brokers.iter();
            let brokers = brokers.map(|(at, partitions)| Broker { address: at.to_string(), partitions: *partitions });
            output::json(&Grown { topic, from: grown.from, to: args.partitions, brokers: brokers.collect() })?;
        } else if grown.from == args.partitions {
            output::line(&format!("{topic} has {} partitions already", grown.from))?;
        } else {
            let (brokers, from, to) = (grown.brokers.len(), grown.from, args.partitions);
            output::line(&format!("{topic} has grown from {from} to {to} partitions on {brokers} brokers"))?;
        }
        Ok(End::Done)
    })
    .await
}
