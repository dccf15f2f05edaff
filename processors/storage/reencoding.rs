//! Gives the records of a changelog the vectors of another encoder. Pure: lists the texts of a record,
//! and puts the vectors that the caller has made of them.
//!
//! | record | vectors |
//! |---|---|
//! | memory | its own, and those of the neighbouring turns that it has |
//! | turn of a context window | its own |
//! | any other | none: the record stays byte by byte |
//!
//! Invariant: where there was no vector there is none afterwards, and nothing but vectors changes.

use crate::changelog;
use crate::store::{format, keys};
use domain::fault::Result;
use domain::{ContextTurn, Memory, NeighbourTurn, Vector};
use kernel::encoded;

/// A record with vectors.
pub enum Reencoding {
    /// With the vector of the memory.
    Memory(Box<Memory>, Vector),
    /// With the number of the turn in its session.
    Turn(u64, ContextTurn),
}

impl Reencoding {
    /// Reads the record with this changelog key. `None` for a record without vectors.
    pub fn of(name: &[u8], state: &[u8]) -> Result<Option<Reencoding>> {
        let key = changelog::named(name.to_vec())?;
        if keys::ring_of(&key).is_some() {
            let (number, said) = format::said(state)?;
            return Ok(Some(Reencoding::Turn(number, said)));
        }
        let (Some(user), true) = (keys::user_of(&key), keys::is_memory(&key)) else {
            return Ok(None);
        };
        let id = keys::memory_id(&key[keys::all(&user, keys::MEMORY).len()..]);
        let id = id.ok_or_else(|| format::unreadable("a memory has no id"))?;
        let memory = format::memory(&user, id, state)?;
        let memory = memory.ok_or_else(|| format::unreadable("a vector has no memory"))?;
        let vector = format::vector(state)?.unwrap_or_default();
        Ok(Some(Reencoding::Memory(Box::new(memory), vector)))
    }

    /// The texts whose vectors [`Reencoding::bytes`] takes, in the same order.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Reencoding::Memory(memory, vector) => {
                let own = (!vector.is_empty()).then(|| encoded::of_memory(memory));
                let around = memory.around.all().filter(|turn| !turn.vector.is_empty());
                own.into_iter().chain(around.map(encoded::of_neighbour)).collect()
            }
            Reencoding::Turn(_, said) if said.vector.is_empty() => Vec::new(),
            Reencoding::Turn(_, said) => vec![encoded::of_context(said)],
        }
    }

    /// The present vectors, in the order of the texts.
    pub fn vectors(&self) -> Vec<&Vector> {
        let all: Vec<&Vector> = match self {
            Reencoding::Memory(memory, vector) => {
                let around = memory.around.all().map(|turn| &turn.vector);
                std::iter::once(vector).chain(around).collect()
            }
            Reencoding::Turn(_, said) => vec![&said.vector],
        };
        all.into_iter().filter(|vector| !vector.is_empty()).collect()
    }

    /// The bytes of the record with other vectors. A text without one is an empty vector.
    pub fn bytes(self, vectors: Vec<Vector>) -> Vec<u8> {
        let mut vectors = vectors.into_iter();
        let mut replace = |vector: &mut Vector| {
            if !vector.is_empty() {
                *vector = vectors.next().unwrap_or_default();
            }
        };
        match self {
            Reencoding::Memory(mut memory, mut vector) => {
                replace(&mut vector);
                let around = &mut memory.around;
                let turns: [&mut Option<NeighbourTurn>; 3] =
                    [&mut around.before, &mut around.earlier, &mut around.after];
                turns.into_iter().flatten().for_each(|turn| replace(&mut turn.vector));
                format::memory_and_vector_bytes(&memory, &vector)
            }
            Reencoding::Turn(number, mut said) => {
                replace(&mut said.vector);
                format::said_bytes(number, &said)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::Destination;
    use crate::store::tests::{a_memory, a_neighbour, a_vector, key};
    use domain::{NeighbourTurns, Role, Surprise};

    /// A memory of a turn, with two neighbours of which one has a vector.
    fn of_a_turn() -> Memory {
        let memory = a_memory(7, "I moved to Lisbon");
        let before = a_neighbour(&memory.source);
        let earlier = NeighbourTurn { vector: Vector::default(), ..before.clone() };
        Memory {
            speaker: Some("zoë".to_owned()),
            surprise: Some(Surprise::default()),
            history: vec![],
            around: NeighbourTurns { before: Some(before), earlier: Some(earlier), after: None },
            ..memory
        }
    }

    fn name_of(memory: &Memory) -> Vec<u8> {
        format!("{}/{}", memory.key, memory.id).into_bytes()
    }

    fn read(name: &[u8], state: &[u8]) -> Reencoding {
        Reencoding::of(name, state).expect("readable").expect("with vectors")
    }

    #[test]
    fn each_vector_of_a_memory_is_replaced_and_nothing_else() {
        let memory = of_a_turn();
        let state = format::memory_and_vector_bytes(&memory, &a_vector(1));
        let record = read(&name_of(&memory), &state);
        let neighbour = a_neighbour(&memory.source);
        let words = format!("{}: {}", neighbour.speaker, neighbour.words);
        assert_eq!(record.texts(), ["zoë: I moved to Lisbon", words.as_str()]);
        assert_eq!(record.vectors(), [&a_vector(1), &neighbour.vector]);
        let (own, other) = (Vector::of(&[1.0, 0.0]), Vector::of(&[0.0, 1.0]));
        let anew = record.bytes(vec![own.clone(), other.clone()]);
        assert_eq!(format::vector(&anew).expect("readable"), Some(own));
        let found = format::memory(&memory.key, memory.id, &anew).expect("readable").expect("put");
        let mut expected = memory.clone();
        expected.around.before.as_mut().expect("a neighbour").vector = other;
        assert_eq!(found, expected, "the earlier neighbour still has no vector");
        // The same vectors are the same bytes.
        let record = read(&name_of(&memory), &state);
        let same = record.vectors().into_iter().cloned().collect();
        assert_eq!(record.bytes(same), state);
    }

    #[test]
    fn the_text_of_a_memory_is_that_of_its_last_event() {
        let turn = of_a_turn();
        let history = a_memory(7, "").history;
        assert!(!history.is_empty());
        let changed = Memory { history, ..turn.clone() };
        let asked = Memory { surprise: None, ..turn.clone() };
        let unnamed = Memory { speaker: None, role: Role::Assistant, ..turn };
        for (memory, expected) in [
            (changed, "I moved to Lisbon"),
            (asked, "I moved to Lisbon"),
            (unnamed, "assistant: I moved to Lisbon"),
        ] {
            let state = format::memory_and_vector_bytes(&memory, &a_vector(1));
            assert_eq!(read(&name_of(&memory), &state).texts()[0], expected);
        }
    }

    #[test]
    fn a_turn_of_a_window_has_the_text_of_a_neighbour() {
        let said = ContextTurn {
            speaker: "zoë".into(),
            role: Role::User,
            content: "w ".repeat(60).trim_end().into(),
            vector: a_vector(2),
            source: None,
            question: 0.0,
            memory: None,
        };
        let ring = [keys::turn_ring(&key("zoe"), "monday"), vec![1]].concat();
        let rest = hex::encode(&ring[keys::user(&key("zoe")).len() + 1..]);
        let name = format!("acme/zoe/t.{rest}").into_bytes();
        let record = read(&name, &format::said_bytes(5, &said));
        assert_eq!(record.texts(), [format!("zoë: {}", "w ".repeat(40).trim_end())]);
        let anew = record.bytes(vec![Vector::of(&[1.0])]);
        let expected = (5, ContextTurn { vector: Vector::of(&[1.0]), ..said.clone() });
        assert_eq!(format::said(&anew).expect("readable"), expected);
        let without = ContextTurn { vector: Vector::default(), ..said };
        assert!(read(&name, &format::said_bytes(5, &without)).texts().is_empty());
    }

    #[test]
    fn a_record_without_vectors_stays() {
        let to = Destination { topic: "m", partition: 0 };
        let signing_key = to.signing_key("a", "b").key.expect("a key");
        assert!(Reencoding::of(b"closed", &[]).expect("known").is_none());
        assert!(Reencoding::of(b"acme/zoe/g.", &[]).expect("known").is_none());
        assert!(Reencoding::of(&signing_key, &[]).is_err(), "not a record of a shard");
    }
}
