//! Tests how partitions are assigned, restored, opened, followed and given up.

use super::*;
use broker::Broker;
use broker::clock::ManualClock;
use domain::Time;
use parking_lot::Mutex as Lock;
use settings::Layers;
use simulated::Cluster;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use storage::home::MemoryHome;

const PARTITIONS: i32 = 2;

fn deployment(home: Home) -> Deployment {
    Deployment {
        home,
        cluster: "c".into(),
        topic: "events".into(),
        partitions: PARTITIONS,
        model: "hash".into(),
        dimensions: 4,
    }
}

fn shards(home: Home, changelog: Option<Changelog>) -> ShardRegistry {
    let config = Layers::defaults().checked().expect("the defaults are valid");
    let options = options::shard(&config, PARTITIONS);
    let clock = Arc::new(ManualClock::default());
    ShardRegistry::new(deployment(home), options, changelog, clock, Arc::new(Metrics::new()))
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
    let index = storage::home::shard_dir(dir.path(), &deployment(home.clone()).identity(0))
        .join("index/text");
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
    let restore = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
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

fn memories_in(cluster: &Cluster) -> Arc<dyn broker::Log> {
    cluster.create("memories", PARTITIONS);
    cluster.connect("one").log("memories").expect("the topic exists")
}

/// A changelog with a slow look-up of the end, so that a cancelled restore ends late.
struct SlowLog {
    inner: Arc<dyn broker::Log>,
    slow: Duration,
}

impl broker::Log for SlowLog {
    fn end(&self, partition: i32) -> Result<i64> {
        std::thread::sleep(self.slow);
        self.inner.end(partition)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        self.inner.stable_end(partition)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        self.inner.beginning(partition)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        self.inner.first_since(partition, time_ms)
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn broker::Consumer>> {
        self.inner.read(partition, from)
    }
}

#[test]
fn a_restore_waits_for_a_cancelled_one_and_is_carried_out_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (wanted, to_restore) = crossbeam_channel::bounded(16);
    let options = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
    let slow = Duration::from_secs(6);
    let log = Arc::new(SlowLog { inner: memories_in(&Cluster::new()), slow });
    let shards = Arc::new(ShardRegistry::new(
        deployment(Home::Directory(dir.path().to_owned())),
        options::shard(&Layers::defaults().checked().expect("the defaults are valid"), PARTITIONS),
        Some(Changelog { log, options, wanted }),
        Arc::new(broker::clock::SystemClock),
        Arc::new(Metrics::new()),
    ));
    let restores: Vec<_> = std::iter::repeat_with(|| {
        let (shards, to_restore) = (shards.clone(), to_restore.clone());
        std::thread::spawn(move || to_restore.iter().for_each(|it| shards.restore(it)))
    })
    .take(2)
    .collect();
    shards.assigned(&[(0, None)]);
    std::thread::sleep(Duration::from_secs(1));
    // Lost and regained while the broker does not answer, and wanted twice.
    shards.revoked(&[0]);
    shards.assigned(&[(0, None)]);
    shards.send_to_restore(0);
    let began = std::time::Instant::now();
    while shards.get(0).is_none() && began.elapsed() < Duration::from_secs(40) {
        shards.fault().expect("nobody else uses the directory");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(shards.get(0).is_some(), "the second restore opens the shard");
    std::thread::sleep(Duration::from_secs(6));
    shards.fault().expect("the third finds nothing to do");
    drop(restores);
}

#[test]
fn a_directory_that_could_not_be_claimed_stays_claimed() {
    let shards = shards(Home::Memory(MemoryHome::default()), None);
    let first = shards.claim_if(0, |_| true).expect("nobody uses it");
    for _ in 0..2 {
        assert!(
            shards.claim_if(0, |_| true).is_none(),
            "the first claim holds, however often others try"
        );
    }
    drop(first);
    assert!(shards.claim_if(0, |_| true).is_some());
}

#[test]
fn a_shard_that_a_reader_still_holds_is_opened_again_when_the_reader_ends() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shards = Arc::new(ShardRegistry::new(
        deployment(Home::Directory(dir.path().to_owned())),
        options::shard(&Layers::defaults().checked().expect("the defaults are valid"), PARTITIONS),
        None,
        Arc::new(broker::clock::SystemClock),
        Arc::new(Metrics::new()),
    ));
    let held = shards.open(0).expect("an empty directory opens");
    shards.close(0);
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(8));
        drop(held);
    });
    shards.open(0).expect("it waits for the reader");
    reader.join().expect("the reader ends");
}

#[test]
fn stores_that_others_own_and_stores_moved_aside_are_removed_after_their_time() {
    const AFTER_MS: i64 = 1000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = ManualClock::at(Time(1_000_000));
    let shards = {
        let (wanted, _) = crossbeam_channel::bounded(4);
        let options =
            RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
        let changelog = Changelog { log: memories_in(&Cluster::new()), options, wanted };
        let shards = ShardRegistry::new(
            deployment(Home::Directory(dir.path().to_owned())),
            options::shard(&Layers::defaults().checked().expect("the defaults are valid"), 2),
            Some(changelog),
            Arc::new(clock.clone()),
            Arc::new(Metrics::new()),
        );
        shards.open(0).expect("an empty directory opens");
        shards.open(1).expect("an empty directory opens");
        shards
    };
    let [first, second] =
        [0, 1].map(|partition| storage::home::shard_dir(dir.path(), &identity_of(partition)));
    let aside = second.join("store.corrupt-1000000");

    std::fs::create_dir_all(&aside).expect("the directory of the shard is there");
    shards.close(0);
    let closing = std::mem::take(&mut *shards.closing.lock());
    closing.into_iter().for_each(|thread| thread.join().expect("nothing holds the shard"));
    shards.remove_leftovers(AFTER_MS, false);
    clock.advance(AFTER_MS - 1);
    shards.remove_leftovers(AFTER_MS, false);
    assert!(first.exists() && aside.exists(), "it may come back soon");
    clock.advance(1);
    shards.remove_leftovers(AFTER_MS, false);
    assert!(!first.exists() && !aside.exists() && second.join("store").exists());
}

#[test]
fn a_copy_that_is_left_to_others_is_removed_and_made_anew_when_it_is_followed_again() {
    const AFTER_MS: i64 = 1000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = ManualClock::at(Time(1_000_000));
    let (wanted, _) = crossbeam_channel::bounded(4);
    let log = memories_in(&Cluster::new());
    let shards = ShardRegistry::new(
        deployment(Home::Directory(dir.path().to_owned())),
        options::shard(&Layers::defaults().checked().expect("the defaults are valid"), 2),
        Some(Changelog { log, options: RestoreOptions::default(), wanted }),
        Arc::new(clock.clone()),
        Arc::new(Metrics::new()),
    );
    let copies = || {
        [0, 1].map(|partition| {
            storage::home::shard_dir(dir.path(), &identity_of(partition)).join("store").exists()
        })
    };
    let round = || {
        for partition in shards.followed() {
            shards.stand_by(partition, AFTER_MS).expect("a simulated broker");
        }
        shards.remove_leftovers(AFTER_MS, true);
        copies()
    };
    let left = |partitions: &[i32]| shards.leave_to_others(&partitions.iter().copied().collect());
    assert_eq!(round(), [true, true], "at first every shard is followed");
    clock.advance(300);
    assert!(left(&[1]) && !left(&[1]));
    assert_eq!(round(), [true, true]);
    assert!(left(&[]), "an odd look");
    assert_eq!(round(), [true, true]);
    clock.advance(300);
    left(&[1]);
    clock.advance(AFTER_MS - 301);
    assert_eq!(round(), [true, true], "it may be followed again soon");
    clock.advance(1);
    assert_eq!(round(), [true, false], "what was erased since the copy was opened is old now");
    left(&[0]);
    assert_eq!(round(), [true, true], "although the changelog has nothing new");
}

/// A store of the former `store.durability = "local"`.
#[test]
fn a_store_that_the_changelog_lacks_is_moved_aside_and_rebuilt() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = Home::Directory(dir.path().to_owned());
    let former = shards(home.clone(), None);
    let shard = former.open(0).expect("an empty directory opens");
    let checkpoint = storage::store::Checkpoint { applied: 5, changelog: None };
    shard.store.commit(Default::default(), checkpoint).expect("the store takes a checkpoint");
    drop(shard);
    former.close_all();
    drop(former);

    let (wanted, _to_restore) = crossbeam_channel::bounded(4);
    let options = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..Default::default() };
    let shards =
        shards(home, Some(Changelog { log: memories_in(&Cluster::new()), options, wanted }));
    shards.assigned(&[(0, None)]);
    shards.restore(0);
    shards.fault().expect("nothing is wrong with it");
    let shard = shards.get(0).expect("it is restored");
    assert_eq!(shard.applied(), -1, "the events are read from the beginning");
    assert!(shard.lost_store.as_ref().is_some_and(|aside| aside.is_dir()), "it is kept for a time");
}

/// A changelog whose brokers are away for some time.
struct AwayLog {
    inner: Arc<dyn broker::Log>,
    is_away: AtomicBool,
}

impl broker::Log for AwayLog {
    fn end(&self, partition: i32) -> Result<i64> {
        self.inner.end(partition)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        if self.is_away.load(Ordering::Acquire) {
            return Err(Fault::retry("the brokers are away"));
        }
        self.inner.stable_end(partition)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        self.inner.beginning(partition)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        self.inner.first_since(partition, time_ms)
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn broker::Consumer>> {
        self.inner.read(partition, from)
    }
}

/// Without brokers every process loses its partitions: removing their stores would remove the last
/// copies.
#[test]
fn stores_are_kept_while_the_brokers_are_away_and_where_the_changelog_has_less() {
    const AFTER_MS: i64 = 1000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = ManualClock::at(Time(1_000_000));
    let away = AtomicBool::new(true);
    let log = Arc::new(AwayLog { inner: memories_in(&Cluster::new()), is_away: away });
    let options = RestoreOptions { batch_max: 10, away_ms_max: 1000, ..RestoreOptions::default() };
    let (wanted, _) = crossbeam_channel::bounded(4);
    let shards = ShardRegistry::new(
        deployment(Home::Directory(dir.path().to_owned())),
        options::shard(&Layers::defaults().checked().expect("the defaults are valid"), 2),
        Some(Changelog { log: log.clone(), options, wanted }),
        Arc::new(clock.clone()),
        Arc::new(Metrics::new()),
    );
    let [empty, ahead] =
        [0, 1].map(|partition| storage::home::shard_dir(dir.path(), &identity_of(partition)));
    shards.open(0).expect("an empty directory opens");
    let shard = shards.open(1).expect("an empty directory opens");
    let checkpoint = storage::store::Checkpoint { applied: 5, changelog: Some(5) };
    shard.store.commit(Default::default(), checkpoint).expect("the store takes a checkpoint");
    drop(shard);
    shards.close_all();
    for _ in 0..3 {
        shards.remove_leftovers(AFTER_MS, false);
        clock.advance(10 * AFTER_MS);
    }
    assert!(empty.exists() && ahead.exists(), "the brokers are away");
    log.is_away.store(false, Ordering::Release);
    shards.remove_leftovers(AFTER_MS, false);
    assert!(empty.exists(), "the time of the outage does not count");
    clock.advance(AFTER_MS);
    shards.remove_leftovers(AFTER_MS, false);
    assert!(!empty.exists());
    assert!(ahead.exists(), "the changelog ends before this store");
}

/// Opening reads and checks the whole text index of the copy.
#[test]
fn a_copy_for_which_the_changelog_has_nothing_new_is_not_opened() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = ManualClock::at(Time(1_000_000));
    let cluster = Cluster::new();
    let log = memories_in(&cluster);
    let (wanted, _) = crossbeam_channel::bounded(4);
    let shards = ShardRegistry::new(
        deployment(Home::Directory(dir.path().to_owned())),
        options::shard(&Layers::defaults().checked().expect("the defaults are valid"), 1),
        Some(Changelog { log, options: RestoreOptions::default(), wanted }),
        Arc::new(clock.clone()),
        Arc::new(Metrics::new()),
    );
    let copy = storage::home::shard_dir(dir.path(), &identity_of(0));
    // Opening makes a copy that is not there.
    let is_opened_if_rewritten_after = |ms| {
        let _ = std::fs::remove_dir_all(&copy);
        shards.stand_by(0, ms).expect("a simulated broker");
        copy.exists()
    };
    let is_opened = || is_opened_if_rewritten_after(i64::MAX);
    assert!(is_opened());
    clock.advance(499);
    assert!(!is_opened_if_rewritten_after(1000));
    clock.advance(1);
    assert!(is_opened_if_rewritten_after(1000), "a rewrite may be due");
    assert!(!is_opened(), "nothing is new");
    clock.advance(3_600_000);
    assert!(is_opened(), "after an hour");
    assert!(!is_opened());
    let news = broker::OutgoingRecord {
        topic: "memories".into(),
        partition: Some(0),
        key: Some(b"_meta".to_vec()),
        ..Default::default()
    };
    let mut producer = cluster.connect("two").producer("two").expect("a simulated broker");
    producer.send(&news).expect("a simulated broker");
    let _ = std::fs::remove_dir_all(&copy);
    let _ = shards.stand_by(0, i64::MAX); // the record is no checkpoint
    assert!(copy.exists(), "there is something new");
}

fn identity_of(partition: i32) -> storage::store::Identity {
    deployment(Home::Memory(MemoryHome::default())).identity(partition)
}

/// The kept digest is made wrong here, because no test can reach below an open store.
#[test]
fn a_scrub_that_finds_other_records_stops_and_lets_the_next_start_rebuild_the_shard() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = Home::Directory(dir.path().to_owned());
    let store =
        storage::home::shard_dir(dir.path(), &deployment(home.clone()).identity(0)).join("store");
    let shards = shards(home, None);
    let shard = shards.open(0).expect("an empty directory opens");
    shards.scrub(0, &|| true).expect("without a digest there is nothing to compare");
    let sound = shard.store.establish_digest().expect("a disk");
    shards.scrub(0, &|| true).expect("the records are those that were written");
    let digest = Some(storage::store::Digest { records: sound.records + 1, ..sound });
    let batch = storage::store::EncodedBatch { digest, ..Default::default() };
    let checkpoint = storage::store::Checkpoint { applied: 3, changelog: None };
    shard.store.commit(batch, checkpoint).expect("a disk");
    let Err(Fault::Stop(stop)) = shards.scrub(0, &|| true) else { panic!("a record is missing") };
    assert_eq!(stop.name, StopName::StoreUnreadable);
    assert!(store.join("damaged").exists(), "the next start sets the store aside");
    let page = shards.metrics.page();
    assert!(page.contains("keepsake_scrubs_total{outcome=\"equal\"} 1"), "{page}");
    assert!(page.contains("keepsake_scrubs_total{outcome=\"different\"} 1"), "{page}");
}

/// Closes as slowly as an index whose segments are being merged.
struct Merging(crossbeam_channel::Receiver<()>, crossbeam_channel::Sender<&'static str>);

impl Drop for Merging {
    fn drop(&mut self) {
        let merged = self.0.recv_timeout(Duration::from_secs(10));
        let _ = self.1.send(if merged.is_ok() { "merged" } else { "blocked" });
    }
}

#[test]
fn closing_a_shard_does_not_wait_for_a_merge() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shards = shards(Home::Directory(dir.path().to_owned()), None);
    let (merge, merging) = crossbeam_channel::bounded(1);
    let (end, ended) = crossbeam_channel::bounded(1);
    let held = Arc::new(Merging(merging, end));
    let reader = held.clone();
    shards.drop_elsewhere(held);
    // A reader that ends first leaves the last reference to the closing thread.
    drop(reader);
    merge.send(()).expect("the closing thread waits for it");
    shards.close_all();
    assert_eq!(ended.try_recv(), Ok("merged"), "the end waits for what still closes");
    let open = shards.open(0).expect("an empty directory opens");
    let files = open.files();
    drop(open);
    shards.revoked(&[0]);
    shards.await_closed(0);
    shards.close_all();
    assert_eq!(files.strong_count(), 0);
    shards.open(0).expect("the next opener finds it closed");
}
