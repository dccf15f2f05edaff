//! Tests that events whose schema cannot be had now are put aside or, in a silent replay, left for
//! the next start. None is lost.

use super::{Bench, remember};
use broker::Record;

/// Nobody listens at the registry's address.
fn bench() -> Bench {
    Bench::of(&[
        ("schemas.registry", "http://127.0.0.1:9"),
        ("ingest.dead_letters_in_a_row_max", "3"),
    ])
}

fn avro(bench: &mut Bench) -> Record {
    let record = bench.record(&remember("The parcel is here."));
    Record { value: Some(vec![0, 0, 0, 0, 7, 2]), ..record }
}

#[test]
fn events_without_their_schema_are_put_aside_and_never_stop_the_service() {
    let mut bench = bench();
    let mut records: Vec<Record> = (0..10).map(|_| avro(&mut bench)).collect();
    records.push(bench.record(&remember("The hut is green.")));
    let values: Vec<_> = records[..10].iter().map(|record| record.value.clone()).collect();
    let (outputs, decisions) = bench.step(records);
    assert_eq!(decisions.len(), 1, "the event that needs no schema is applied");
    let letters = outputs.iter().filter(|output| output.topic == "keepsake.dead-letters");
    let (found, reasons): (Vec<_>, Vec<_>) = letters
        .map(|letter| {
            let (_, reason) = letter
                .headers
                .iter()
                .find(|(name, _): &&(String, Vec<u8>)| name.ends_with("exception.class.name"))
                .expect("a reason");
            (letter.value.clone(), String::from_utf8_lossy(reason).into_owned())
        })
        .unzip();
    assert_eq!((found, reasons), (values, vec!["schema-unavailable".to_owned(); 10]));
}
