//! Three brokers that replicate everything are killed, stopped, frozen and cut off one after the other,
//! while the processes serve: the leader of a partition, the leader of the controllers, and the
//! coordinators of the group and of a transaction.

use super::{PROCESSES, Torture, Tortured, seed, torture};
use crate::support::cluster::Cluster;
use crate::support::proxy::Cut;
use crate::support::skips::skipped;
use crate::support::workload::Dice;
use crate::support::{number_from_env, on_kafka, scratch};
use std::time::Duration;

/// Time for which a broker is away, in ms. After 3 s its fellows count it out.
const AWAY: [u64; 3] = [500, 2000, 5000];

on_kafka! { law_nothing_twice_when_one_of_three_brokers_fails }

fn law_nothing_twice_when_one_of_three_brokers_fails() {
    let Some(blows) = number_from_env("KEEPSAKE_TORTURE_BROKERS") else {
        let why = "three brokers that fail (make torture sets KEEPSAKE_TORTURE_BROKERS)";
        skipped("torture::three_brokers", why);
        return;
    };
    let seed = seed();
    let cluster = Cluster::start_in(&scratch::root().join("three-brokers"));
    let processes = Tortured::start(&cluster.servers, seed % 2 == 1);
    let prefix = processes.places[0].prefix.clone();
    let torture_of = Torture { seed, blows: blows as usize };
    torture(&cluster.servers.clone(), processes, torture_of, |processes, dice, _| {
        if dice.below(5) == 0 {
            return processes.kill(dice.below(PROCESSES as u64) as usize);
        }
        // With two brokers away nobody could confirm a record.
        cluster.wait_until_whole();
        let (what, broker) = victim(&cluster, &prefix, dice);
        let how = strike(&cluster, broker, dice);
        format!("{how} of broker {broker}, {what}")
    });
}

fn victim(cluster: &Cluster, prefix: &str, dice: &mut Dice) -> (&'static str, i32) {
    let partition = dice.below(3) as i32;
    match dice.below(5) {
        0 => ("the leader of events", cluster.leader(&format!("{prefix}events"), partition)),
        1 => ("the leader of memories", cluster.leader(&format!("{prefix}memories"), partition)),
        2 => ("the leader of the controllers", cluster.controller()),
        3 => ("the coordinator of the group", cluster.group_coordinator(prefix)),
        _ => {
            let id = format!("{prefix}{partition}");
            ("a coordinator of transactions", cluster.transaction_coordinator(&id))
        }
    }
}

fn strike(cluster: &Cluster, broker: i32, dice: &mut Dice) -> String {
    let ms = AWAY[dice.below(AWAY.len() as u64) as usize];
    let time = Duration::from_millis(ms);
    match dice.below(5) {
        0 => {
            cluster.kill(broker, time);
            format!("kill -9 with a start after {ms} ms")
        }
        1 => {
            cluster.restart(broker);
            "a restart".to_owned()
        }
        2 => {
            cluster.freeze(broker, time);
            format!("SIGSTOP for {ms} ms")
        }
        3 => {
            cluster.cut(broker, Cut::ToBroker, time);
            format!("no requests for {ms} ms")
        }
        _ => {
            cluster.cut(broker, Cut::FromBroker, time);
            format!("no answers for {ms} ms")
        }
    }
}
