//! Encodes batches of texts on several threads and returns the vectors in the order of the texts.
//!
//! 1. `begin` puts a `Share` for each worker into a bounded queue; all shares refer to the same
//!    `Batch`.
//! 2. Each worker takes the next text of the batch until none is left, so a long text delays only
//!    one worker.
//! 3. Each worker sends one `Answer` with all its vectors. `finish` puts them in order.
//!
//! A text on which the encoder fails or panics is tried once more, and then refused if the encoder
//! still encodes another text. Else the model is at fault, and the batch ends with a fault.
//!
//! The pool starts no thread: its owner starts one for each [`Worker`], with a separate session.

use super::cache::{CachedBatch, VectorCache};
use super::vectors::Embedder;
use crossbeam_channel::{Receiver, Sender, bounded, select};
use domain::fault::{Fault, Result, StopName};
use domain::panics::caught;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Parts of batches that may wait for the encoder threads. Each lane of ingest submits two batches at
/// a time, divided among the threads.
pub const QUEUE: usize = 1024;
/// Cached vectors of texts that ingest has encoded, by a hash of the text, so that "Thanks!" is
/// encoded once: 1,024 vectors take 2 MB.
pub const REMEMBERED: usize = 1024;

/// Creates a pool and its worker, to be cloned for each thread. At most `queue` shares wait for a
/// worker; a caller with more shares blocks.
pub fn pool(queue: usize) -> (Pool, Worker) {
    let (sender, shares) = bounded(queue.max(1));
    let (alive, ended) = bounded(0);
    let workers = Arc::new(AtomicUsize::new(0));
    let threads = Threads { shares: sender, workers: workers.clone(), ended };
    (
        Pool { workers: Workers::Threads(threads), recorded: Arc::default(), cache: None },
        Worker { shares, workers, _alive: alive },
    )
}

/// Creates a pool without workers: the calling thread encodes.
pub fn in_place(embedder: Box<dyn Embedder>) -> Pool {
    Pool {
        workers: Workers::Caller(Arc::new(Mutex::new(embedder))),
        recorded: Arc::default(),
        cache: None,
    }
}

#[derive(Clone)]
pub struct Pool {
    workers: Workers,
    /// The encoded texts, after `record` was called.
    recorded: Arc<OnceLock<Mutex<Vec<String>>>>,
    cache: Option<Arc<VectorCache>>,
}

#[derive(Clone)]
enum Workers {
    Threads(Threads),
    Caller(Arc<Mutex<Box<dyn Embedder>>>),
}

#[derive(Clone)]
struct Threads {
    shares: Sender<Share>,
    /// Number of running workers.
    workers: Arc<AtomicUsize>,
    /// Carries no message: the channel closes with the last worker. The channel of shares cannot
    /// show that, since shares stay there when no worker is left.
    ended: Receiver<Infallible>,
}

/// One worker's part of a batch. The texts are not divided in advance: each free worker takes the
/// next one.
struct Share {
    batch: Arc<Batch>,
    answer: Sender<Answer>,
}

struct Batch {
    texts: Vec<String>,
    next: AtomicUsize,
    began: Instant,
    /// Time until the last worker finished the batch.
    took_us: AtomicU64,
}

/// A batch that is being encoded while the caller does something else. Dropping the batch stops the
/// encoding of the remaining texts.
pub struct Pending {
    batch: Arc<Batch>,
    cached: Option<CachedBatch>,
    /// `None` if the calling thread encodes, in `finish`.
    answers: Option<Receiver<Answer>>,
}

/// All vectors that one worker made of a batch, with their places. One message holds them all,
/// because waking the caller costs more than encoding a short text.
type Answer = Result<Vec<(usize, Encoded)>>;

/// The vector of a text, or why the encoder refuses this text.
pub type Encoded = std::result::Result<Vec<f32>, Refusal>;

/// A text that the encoder does not encode, although other texts are encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub message: String,
    /// The stack, if the encoder panicked.
    pub stack: Option<String>,
}

/// Encoded after a refused text, to see whether the text or the model is at fault: the second one
/// by the encoder for other languages, if there is one.
const PROBE: &str = "The tea is in the blue tin.";
const PROBE_NOT_ENGLISH: &str = "Der Tee ist in der blauen Dose.";

impl Pool {
    /// Adds a cache for the vectors of this many recently encoded texts.
    pub fn remembering(self, texts: usize) -> Pool {
        Pool { cache: (texts > 0).then(|| Arc::new(VectorCache::new(texts))), ..self }
    }

    /// Encodes texts and returns the vectors in their order, or the first fault or refusal.
    pub fn encode_all(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>> {
        let (vectors, _) = self.finish(self.begin(texts)?)?;
        let vectors: std::result::Result<_, Refusal> = vectors.into_iter().collect();
        vectors.map_err(|refusal| Fault::stop(StopName::ModelUnusable, refusal.message))
    }

    /// Starts to encode a batch. [`Pool::finish`] waits for the vectors.
    pub fn begin(&self, texts: Vec<String>) -> Result<Pending> {
        let (cached, texts) = match &self.cache {
            Some(cache) => {
                let (cached, to_encode) = cache.look_up(texts);
                (Some(cached), to_encode)
            }
            None => (None, texts),
        };
        let batch = Arc::new(Batch {
            texts,
            next: AtomicUsize::new(0),
            began: Instant::now(),
            took_us: AtomicU64::new(0),
        });
        let answers = match &self.workers {
            Workers::Threads(threads) => Some(threads.begin(&batch)?),
            Workers::Caller(_) => None,
        };
        Ok(Pending { batch, cached, answers })
    }

    /// Waits for the vectors of a batch. Also returns how long the encoding took.
    pub fn finish(&self, mut pending: Pending) -> Result<(Vec<Encoded>, Duration)> {
        let batch = &pending.batch;
        let vectors = match (&self.workers, &pending.answers) {
            (Workers::Threads(threads), Some(answers)) => {
                threads.in_order(answers, batch.texts.len())?
            }
            (Workers::Caller(embedder), _) => {
                let mut embedder = embedder.lock();
                batch.encode(embedder.as_mut())?.into_iter().map(|(_, vector)| vector).collect()
            }
            (Workers::Threads(_), None) => return Err(workers_gone()),
        };
        if let Some(recorded) = self.recorded.get() {
            recorded.lock().extend_from_slice(&batch.texts);
        }
        let took = Duration::from_micros(batch.took_us.load(Ordering::Relaxed));
        Ok((self.completed(pending.cached.take(), vectors), took))
    }

    fn completed(&self, cached: Option<CachedBatch>, vectors: Vec<Encoded>) -> Vec<Encoded> {
        match (&self.cache, cached) {
            (Some(cache), Some(cached)) => cache.complete(cached, vectors),
            _ => vectors,
        }
    }

    /// Starts to record every encoded text, so that a benchmark can measure with the same texts.
    pub fn record(&self) {
        self.recorded.get_or_init(Mutex::default);
    }

    /// Returns the texts recorded since the last call.
    pub fn recorded(&self) -> Vec<String> {
        self.recorded.get().map(|texts| std::mem::take(&mut *texts.lock())).unwrap_or_default()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.batch.next.store(self.batch.texts.len(), Ordering::Relaxed);
    }
}

impl Threads {
    fn begin(&self, batch: &Arc<Batch>) -> Result<Receiver<Answer>> {
        let count = batch.texts.len();
        let shares = self.workers.load(Ordering::Relaxed).max(1).min(count);
        // Invariant: the channel has room for the answer to every share, so a worker never waits
        // for the caller.
        let (sender, answers) = bounded(shares);
        for _ in 0..shares {
            self.shares
                .send(Share { batch: batch.clone(), answer: sender.clone() })
                .map_err(|_| workers_gone())?;
        }
        // Order matters: without our own sender, the channel of answers closes when the workers'
        // are dropped.
        drop(sender);
        Ok(answers)
    }

    fn in_order(&self, answers: &Receiver<Answer>, count: usize) -> Result<Vec<Encoded>> {
        let mut vectors = vec![None; count];
        while vectors.iter().any(Option::is_none) {
            let answer = select! {
                recv(answers) -> answer => answer.ok(),
                recv(self.ended) -> _ => answers.try_recv().ok(),
            };
            for (index, vector) in answer.ok_or_else(workers_gone)?? {
                vectors[index] = Some(vector);
            }
        }
        vectors.into_iter().collect::<Option<_>>().ok_or_else(workers_gone)
    }
}

/// The part of a pool that runs on a thread. A clone that is not run must be dropped, or a caller
/// waits for that one after the others have died.
#[derive(Clone)]
pub struct Worker {
    shares: Receiver<Share>,
    workers: Arc<AtomicUsize>,
    _alive: Sender<Infallible>,
}

impl Worker {
    /// Encodes until every clone of the pool is dropped.
    pub fn run(self, mut embedder: Box<dyn Embedder>) {
        // Never decremented: too many shares end at once, too few would leave a worker idle.
        self.workers.fetch_add(1, Ordering::Relaxed);
        for share in &self.shares {
            let vectors = share.batch.encode(embedder.as_mut());
            // The caller may have stopped at an earlier fault.
            let _ = share.answer.send(vectors);
        }
    }
}

impl Batch {
    fn encode(&self, embedder: &mut dyn Embedder) -> Answer {
        let mut vectors = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(text) = self.texts.get(index) else {
                self.took_us.fetch_max(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
                return Ok(vectors);
            };
            match encode(embedder, text) {
                Ok(encoded) => vectors.push((index, encoded)),
                Err(fault) => {
                    // Stops the other workers of the batch.
                    self.next.store(self.texts.len(), Ordering::Relaxed);
                    return Err(fault);
                }
            }
        }
    }
}

/// Encodes a text, or reports whether the text or the model is at fault.
fn encode(embedder: &mut dyn Embedder, text: &str) -> Result<Encoded> {
    let probe = if text::is_english(text) { PROBE } else { PROBE_NOT_ENGLISH };
    match try_once(embedder, text).or_else(|_| try_once(embedder, text)) {
        Err(refusal) if try_once(embedder, probe).is_err() => {
            Err(Fault::stop(StopName::ModelUnusable, refusal.message))
        }
        encoded => Ok(encoded),
    }
}

fn try_once(embedder: &mut dyn Embedder, text: &str) -> Encoded {
    match caught(|| embedder.encode(text)) {
        Ok(Ok(vector)) => Ok(vector),
        Ok(Err(fault)) => Err(Refusal { message: fault.to_string(), stack: None }),
        Err(panic) => Err(Refusal { message: panic.message, stack: Some(panic.stack) }),
    }
}

fn workers_gone() -> Fault {
    Fault::stop(StopName::ThreadDied, "an encoder thread died; the cause is in the log above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Holds memory-spec 9.
    #[test]
    fn a_cached_text_is_not_encoded_again() {
        let pool = in_place(Box::new(Length)).remembering(2);
        pool.record();
        assert_eq!(encoded_so_far(&pool, &["a", "bb", "a", "a"]), 2);
        assert_eq!(encoded_so_far(&pool, &["bb", "a"]), 2);
        assert_eq!(encoded_so_far(&pool, &["ccc", "a"]), 3);
        assert_eq!(encoded_so_far(&pool, &["bb"]), 4, "the least recently used vector is evicted");
        assert!(pool.encode_all(vec!["fault".into()]).is_err());
    }

    #[test]
    fn a_pending_batch_is_encoded_in_the_background_and_may_be_dropped() {
        let (pool, worker) = pool(1);
        pool.record();
        thread::spawn(move || worker.run(Box::new(Length)));
        drop(pool.begin(owned(&["a", "bb"])).expect("a worker"));
        let first = pool.begin(owned(&["ccc"])).expect("a worker");
        let second = pool.begin(owned(&[])).expect("a worker");
        assert_eq!(pool.finish(second).expect("no fault").0, Vec::<Encoded>::new());
        assert_eq!(pool.finish(first).expect("no fault").0, [Ok(vec![3.0])]);
        assert_eq!(texts_encoded(&pool), 1, "a dropped batch is not counted");
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Encodes texts and returns how many texts the model has encoded since the start.
    fn encoded_so_far(pool: &Pool, texts: &[&str]) -> usize {
        let vectors = pool.encode_all(owned(texts)).expect("no text requests a fault");
        let expected: Vec<_> = texts.iter().map(|text| vec![text.len() as f32]).collect();
        assert_eq!(vectors, expected);
        texts_encoded(pool)
    }

    /// Counts the texts encoded since `record` was called.
    fn texts_encoded(pool: &Pool) -> usize {
        pool.recorded.get().expect("`record` was called").lock().len()
    }

    /// An encoder whose vector is the length of the text. Fails and panics on request.
    struct Length;

    impl Embedder for Length {
        fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
            match text {
                "fault" => Err(Fault::stop(StopName::ModelUnusable, "as asked")),
                "panic" => panic!("as asked"),
                _ => Ok(vec![text.len() as f32]),
            }
        }

        fn dimensions(&self) -> usize {
            1
        }

        fn name(&self) -> &str {
            "length"
        }
    }

    fn encode_with(workers: usize, texts: &[&str]) -> (Result<Vec<Vec<f32>>>, Pool) {
        let (pool, worker) = pool(2);
        for _ in 0..workers {
            let worker = worker.clone();
            thread::spawn(move || worker.run(Box::new(Length)));
        }
        drop(worker);
        (pool.encode_all(owned(texts)), pool)
    }

    fn check_stops(workers: usize, texts: &[&str], expected: StopName) {
        match encode_with(workers, texts).0 {
            Err(Fault::Stop(stop)) => assert_eq!(stop.name, expected),
            other => panic!("expected {expected:?}, got {other:?}"),
        }
    }

    #[test]
    fn vectors_come_in_the_order_of_the_texts_however_many_there_are() {
        let texts: Vec<String> = (0..500).map(|n| "x".repeat(n % 37)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        for workers in [1, 3] {
            let (vectors, _) = encode_with(workers, &texts);
            let lengths: Vec<f32> = vectors.unwrap().iter().map(|vector| vector[0]).collect();
            assert_eq!(lengths, texts.iter().map(|text| text.len() as f32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn texts_are_recorded_only_after_record() {
        let (_, pool) = encode_with(1, &["before"]);
        assert!(pool.recorded().is_empty());
        pool.record();
        let _ = pool.encode_all(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(pool.recorded(), ["a", "b"]);
        assert!(pool.recorded().is_empty());
    }

    #[test]
    fn nothing_to_encode_needs_no_worker() {
        assert!(encode_with(0, &[]).0.unwrap().is_empty());
    }

    #[test]
    fn a_pool_without_workers_encodes_on_the_calling_thread() {
        let pool = in_place(Box::new(Length));
        pool.record();
        assert_eq!(pool.encode_all(vec!["ab".to_owned(), "a".to_owned()]).unwrap(), [[2.0], [1.0]]);
        assert_eq!(texts_encoded(&pool), 2);
        assert!(pool.encode_all(vec!["fault".to_owned()]).is_err());
    }

    #[test]
    fn a_refused_text_leaves_the_others_of_its_batch_alone() {
        for texts in [["a", "fault", "bb"], ["a", "panic", "bb"]] {
            for workers in [1, 2] {
                let (pool, worker) = pool(2);
                for _ in 0..workers {
                    let worker = worker.clone();
                    thread::spawn(move || worker.run(Box::new(Length)));
                }
                for _ in 0..2 {
                    let pending = pool.begin(owned(&texts)).expect("a worker");
                    let (vectors, _) = pool.finish(pending).expect("the model encodes others");
                    assert_eq!((&vectors[0], &vectors[2]), (&Ok(vec![1.0]), &Ok(vec![2.0])));
                    let refusal = vectors[1].clone().expect_err("this text is refused");
                    assert!(refusal.message.contains("as asked"), "{}", refusal.message);
                    let is_panic = texts[1] == "panic";
                    assert_eq!(refusal.stack.is_some_and(|stack| !stack.is_empty()), is_panic);
                }
            }
        }
    }

    #[test]
    fn a_model_that_fails_on_every_text_is_a_fault() {
        let pool = in_place(Box::new(Broken));
        let pending = pool.begin(owned(&["a", "bb"])).expect("a worker");
        let Err(Fault::Stop(stop)) = pool.finish(pending) else { panic!("the model is broken") };
        assert_eq!(stop.name, StopName::ModelUnusable);
    }

    /// An encoder that encodes nothing.
    struct Broken;

    impl Embedder for Broken {
        fn encode(&mut self, _: &str) -> Result<Vec<f32>> {
            panic!("no text is encoded")
        }

        fn dimensions(&self) -> usize {
            1
        }

        fn name(&self) -> &str {
            "broken"
        }
    }

    #[test]
    fn dead_workers_stop_the_caller_instead_of_blocking_it() {
        check_stops(0, &["a"], StopName::ThreadDied);
        check_stops(0, &["a", "b", "c", "d", "e"], StopName::ThreadDied);
    }

    #[test]
    fn a_worker_ends_when_all_handles_are_gone() {
        let (pool, worker) = pool(1);
        let handle = thread::spawn(move || worker.run(Box::new(Length)));
        let other = pool.clone();
        drop(pool);
        assert_eq!(other.encode_all(vec!["ab".to_owned()]).unwrap(), [[2.0]]);
        drop(other);
        handle.join().unwrap();
    }
}
