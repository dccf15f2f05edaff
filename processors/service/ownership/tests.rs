use super::*;
use crate::config::Layers;
use crate::run::options;
use log::broker::Broker;
use log::clock::ManualClock;
use parking_lot::Mutex as Lock;
use simulated::Cluster;
use std::io::Write;
use std::path::Path;
use storage::home::MemoryHome;

const PARTITIONS: i32 = 2;

fn place(home: Home) -> Deployment {
    Deployment {
        home,
        cluster: "c".into(),
        topic: "events".into(),
        partitions: PARTITIONS,
        model: "hash".into(),
        dimensions: 4,
    }
}

fn shards(home: Home, changelog: Option<Changelog>) -> Shards {
    let config = Layers::defaults().checked().expect("the defaults are valid");
    let options = options::shard(&config, PARTITIONS);
    let clock = Arc::new(ManualClock::default());
    Shards::new(place(home), options, changelog, clock, Arc::new(Metrics::new()))
}

/// Collects log lines, so that a test can search them.
#[derive(Clone, Default)]
struct Lines(Arc<Lock<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(work: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    String::from_utf8(lines.0.lock().clone()).expect("log lines are UTF-8")
}

fn damage_every_file_in(dir: &Path) {
    let entries = std::fs::read_dir(dir).expect("the index has a directory");
    for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
        std::fs::write(entry.path(), "damaged").expect("the file can be written");
    }
}

#[test]
fn a_discarded_index_is_logged_with_its_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = Home::Directory(dir.path().to_owned());
    let first = shards(home.clone(), None);
    first.open(0).expect("an empty directory opens");
    first.close_all();
    drop(first);
    let index =
        storage::home::shard_dir(dir.path(), &place(home.clone()).identity(0)).join("index/text");
    damage_every_file_in(&index);
    let lines = logged(|| drop(shards(home, None).open(0).expect("the index is rebuilt")));
    assert!(lines.contains("discarded the index") && lines.contains("partition=0"), "{lines}");
}

#[test]
fn a_restore_that_does_not_fit_into_the_queue_is_sent_at_a_later_poll() {
    let cluster = Cluster::new();
    cluster.create("memories", PARTITIONS);
    let log = cluster.connect("one").log("memories").expect("the topic exists");
    let (wanted, to_restore) = crossbeam_channel::bounded(1);
    let restore = restore::Options { batch_max: 10, away_ms_max: 1000, until: None };
    let shards = shards(
        Home::Memory(MemoryHome::default()),
        Some(Changelog { log, options: restore, wanted }),
    );
    shards.assigned(&[(0, None), (1, None)]);
    assert_eq!(to_restore.try_iter().collect::<Vec<_>>(), [0]);
    shards.polled();
    assert_eq!(to_restore.try_iter().collect::<Vec<_>>(), [1]);
    shards.polled();
    assert_eq!(to_restore.try_iter().count(), 0, "each restore is sent once");
}
