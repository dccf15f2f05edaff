//! The encoder pool: texts go in, vectors come out in the same order, made by whichever worker was free.
//! It starts no thread; whoever does hands each worker a session of its own.

use super::Embedder;
use super::known::{Asked, Known};
use crate::fault::{Fault, Result, StopName};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// At most `queue` shares of batches wait for a worker; a caller with more of them waits in turn.
pub fn pool(queue: usize) -> (Pool, Worker) {
    let (sender, shares) = bounded(queue.max(1));
    let (alive, ended) = bounded(0);
    let workers = Arc::new(AtomicUsize::new(0));
    let threads = Threads { shares: sender, workers: workers.clone(), ended };
    (
        Pool { by: By::Threads(threads), encoded: Arc::default(), known: None },
        Worker { shares, workers, _alive: alive },
    )
}

/// Without a worker: whoever asks encodes.
pub fn in_place(embedder: Box<dyn Embedder>) -> Pool {
    Pool { by: By::Caller(Arc::new(Mutex::new(embedder))), encoded: Arc::default(), known: None }
}

#[derive(Clone)]
pub struct Pool {
    by: By,
    encoded: Arc<Encoded>,
    known: Option<Arc<Known>>,
}

#[derive(Clone)]
enum By {
    Threads(Threads),
    Caller(Arc<Mutex<Box<dyn Embedder>>>),
}

#[derive(Clone)]
struct Threads {
    shares: Sender<Share>,
    /// Workers that run.
    workers: Arc<AtomicUsize>,
    /// Carries nothing: it ends with the last worker. The shares' own channel cannot tell, it keeps what nobody will ever take.
    ended: Receiver<Infallible>,
}

#[derive(Default)]
struct Encoded {
    texts: AtomicU64,
    bytes: AtomicU64,
    /// The texts themselves, once somebody wants them.
    recorded: OnceLock<Mutex<Vec<String>>>,
}

/// One worker's part of a batch, whichever texts that will be: each takes the next one as soon as it is free.
struct Share {
    batch: Arc<Batch>,
    answer: Sender<Answer>,
}

struct Batch {
    texts: Vec<String>,
    next: AtomicUsize,
    began: Instant,
    /// Until the last worker was done with it.
    took_us: AtomicU64,
}

/// Texts that are being encoded while whoever asked does something else. Dropped, the rest of them is not encoded.
pub struct Pending {
    batch: Arc<Batch>,
    asked: Option<Asked>,
    /// None: whoever asked encodes them himself.
    answers: Option<Receiver<Answer>>,
}

/// All that one worker made of a batch, with the places. One message for all: to wake whoever asked costs more than a quick vector.
type Answer = Result<Vec<(usize, Vec<f32>)>>;

impl Pool {
    /// With the vectors of so many texts at hand that were encoded last.
    pub fn remembering(self, texts: usize) -> Pool {
        Pool { known: (texts > 0).then(|| Arc::new(Known::of(texts))), ..self }
    }

    /// The vectors of these texts, in order. The first fault is the answer if there is one.
    pub fn encode_all(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>> {
        Ok(self.finish(self.begin(texts)?)?.0)
    }

    /// The same in two steps.
    pub fn begin(&self, texts: Vec<String>) -> Result<Pending> {
        let (asked, texts) = match &self.known {
            Some(known) => {
                let (asked, unknown) = known.ask(texts);
                (Some(asked), unknown)
            }
            None => (None, texts),
        };
        let (next, began, took_us) = (AtomicUsize::new(0), Instant::now(), AtomicU64::new(0));
        let batch = Arc::new(Batch { texts, next, began, took_us });
        let answers = match &self.by {
            By::Threads(threads) => Some(threads.begin(&batch)?),
            By::Caller(_) => None,
        };
        Ok(Pending { batch, asked, answers })
    }

    /// With how long the encoding took.
    pub fn finish(&self, mut pending: Pending) -> Result<(Vec<Vec<f32>>, Duration)> {
        let batch = &pending.batch;
        let vectors = match (&self.by, &pending.answers) {
            (By::Threads(threads), Some(answers)) => {
                threads.in_order(answers, batch.texts.len())?
            }
            (By::Caller(embedder), _) => {
                let mut embedder = embedder.lock().unwrap_or_else(PoisonError::into_inner);
                batch.encode(embedder.as_mut())?.into_iter().map(|(_, vector)| vector).collect()
            }
            (By::Threads(_), None) => return Err(workers_gone()),
        };
        self.count(&batch.texts);
        let took = Duration::from_micros(batch.took_us.load(Ordering::Relaxed));
        Ok((self.completed(pending.asked.take(), vectors), took))
    }

    fn completed(&self, asked: Option<Asked>, vectors: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        match (&self.known, asked) {
            (Some(known), Some(asked)) => known.complete(asked, vectors),
            _ => vectors,
        }
    }

    /// Since the start, by all handles.
    pub fn texts_encoded(&self) -> u64 {
        self.encoded.texts.load(Ordering::Relaxed)
    }

    pub fn bytes_encoded(&self) -> u64 {
        self.encoded.bytes.load(Ordering::Relaxed)
    }

    /// Keeps every text that is encoded from here on, for those who measure with the same ones.
    pub fn record(&self) {
        self.encoded.recorded.get_or_init(Mutex::default);
    }

    /// What was encoded since it was last asked for.
    pub fn recorded(&self) -> Vec<String> {
        let recorded = self.encoded.recorded.get().map(|texts| {
            std::mem::take(&mut *texts.lock().unwrap_or_else(PoisonError::into_inner))
        });
        recorded.unwrap_or_default()
    }

    fn count(&self, texts: &[String]) {
        let bytes = texts.iter().map(String::len).sum::<usize>();
        self.encoded.texts.fetch_add(texts.len() as u64, Ordering::Relaxed);
        self.encoded.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(recorded) = self.encoded.recorded.get() {
            recorded.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(texts);
        }
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
        // Invariant: it holds the answer to every share, so a worker never waits for whoever asked.
        let (sender, answers) = bounded(shares);
        for _ in 0..shares {
            self.shares
                .send(Share { batch: batch.clone(), answer: sender.clone() })
                .map_err(|_| workers_gone())?;
        }
        // Order matters: only without our own sender do the answers end when the workers' have.
        drop(sender);
        Ok(answers)
    }

    fn in_order(&self, answers: &Receiver<Answer>, count: usize) -> Result<Vec<Vec<f32>>> {
        let mut vectors = vec![None; count];
        while vectors.iter().any(Option::is_none) {
            let answer = select! {
                recv(answers) -> answer => answer.ok(),
                recv(self.ended) -> _ => answers.try_recv().ok(),
            };
            for (place, vector) in answer.ok_or_else(workers_gone)?? {
                vectors[place] = Some(vector);
            }
        }
        vectors.into_iter().collect::<Option<_>>().ok_or_else(workers_gone)
    }
}

/// One for each thread. Those that are not run must be dropped, else a caller waits for them when the others have died.
#[derive(Clone)]
pub struct Worker {
    shares: Receiver<Share>,
    workers: Arc<AtomicUsize>,
    _alive: Sender<Infallible>,
}

impl Worker {
    /// Encodes until every handle of the pool is gone.
    pub fn run(self, mut embedder: Box<dyn Embedder>) {
        // Never counted down: too many shares are finished at once, too few would leave a worker idle.
        self.workers.fetch_add(1, Ordering::Relaxed);
        for share in &self.shares {
            let vectors = share.batch.encode(embedder.as_mut());
            // Whoever asked may have stopped at an earlier fault.
            let _ = share.answer.send(vectors);
        }
    }
}

impl Batch {
    fn encode(&self, embedder: &mut dyn Embedder) -> Answer {
        let mut vectors = Vec::new();
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(text) = self.texts.get(place) else {
                self.took_us.fetch_max(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
                return Ok(vectors);
            };
            match embedder.encode(text) {
                Ok(vector) => vectors.push((place, vector)),
                Err(fault) => {
                    // The others need not go on.
                    self.next.store(self.texts.len(), Ordering::Relaxed);
                    return Err(fault);
                }
            }
        }
    }
}

fn workers_gone() -> Fault {
    Fault::stop(StopName::ThreadDied, "an encoder thread died; the log above says of what")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_same_text_is_encoded_once_as_long_as_it_is_remembered() {
        let pool = in_place(Box::new(Length)).remembering(2);
        let encode = |texts: &[&str]| {
            let vectors = pool
                .encode_all(texts.iter().map(|text| (*text).to_owned()).collect())
                .expect("no fault was asked for");
            assert_eq!(
                vectors,
                texts.iter().map(|text| vec![text.len() as f32]).collect::<Vec<_>>()
            );
            pool.texts_encoded()
        };
        assert_eq!(encode(&["a", "bb", "a", "a"]), 2);
        assert_eq!(encode(&["bb", "a"]), 2);
        assert_eq!(encode(&["ccc", "a"]), 3);
        assert_eq!(encode(&["bb"]), 4, "the one longest unused had to go");
        assert!(pool.encode_all(vec!["fault".into()]).is_err());
        assert_eq!(encode(&[]), 4);
    }

    #[test]
    fn texts_may_be_encoded_while_something_else_is_done_and_need_not_be_waited_for() {
        let (pool, worker) = pool(1);
        thread::spawn(move || worker.run(Box::new(Length)));
        let begin = |texts: &[&str]| {
            pool.begin(texts.iter().map(|text| (*text).to_owned()).collect()).expect("a worker")
        };
        drop(begin(&["a", "bb"]));
        let (first, second) = (begin(&["ccc"]), begin(&[]));
        assert_eq!(pool.finish(second).expect("no fault").0, Vec::<Vec<f32>>::new());
        assert_eq!(pool.finish(first).expect("no fault").0, [[3.0]]);
        assert_eq!(pool.texts_encoded(), 1, "what nobody waited for does not count");
    }

    /// The length of the text; faults and panics on demand.
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
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        (pool.encode_all(texts), pool)
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
            let (vectors, pool) = encode_with(workers, &texts);
            let lengths: Vec<f32> = vectors.unwrap().iter().map(|vector| vector[0]).collect();
            assert_eq!(lengths, texts.iter().map(|text| text.len() as f32).collect::<Vec<_>>());
            assert_eq!(pool.texts_encoded(), 500);
            assert_eq!(
                pool.bytes_encoded(),
                texts.iter().map(|text| text.len() as u64).sum::<u64>()
            );
        }
    }

    #[test]
    fn texts_are_kept_only_for_those_who_ask() {
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
    fn whoever_asks_may_encode_itself() {
        let pool = in_place(Box::new(Length));
        assert_eq!(pool.encode_all(vec!["ab".to_owned(), "a".to_owned()]).unwrap(), [[2.0], [1.0]]);
        assert!(pool.encode_all(vec!["fault".to_owned()]).is_err());
        assert_eq!(pool.texts_encoded(), 2);
    }

    #[test]
    fn a_fault_of_the_model_reaches_whoever_asked() {
        check_stops(2, &["a", "fault", "b", "c", "d", "e"], StopName::ModelUnusable);
    }

    #[test]
    fn dead_workers_are_a_stop_and_not_a_silence() {
        check_stops(0, &["a"], StopName::ThreadDied);
        check_stops(1, &["a", "panic", "b", "c", "d", "e"], StopName::ThreadDied);
        check_stops(2, &["a", "panic", "b"], StopName::ThreadDied);
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
