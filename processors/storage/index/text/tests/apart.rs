//! Two users with the same ids, in every combination of layers.

use super::*;

const LAYERS: [&str; 3] = ["disk", "flushing", "fresh"];

/// The change of a layer to a memory of one user.
#[derive(Clone, Copy, PartialEq)]
enum LayerChange {
    Nothing,
    Put,
    Removed,
}

/// Number of combinations of a change in each layer to each of two users' memories with the
/// same id. Each combination has two ids: for the even one the first user's change comes first,
/// for the odd one the second user's.
const COMBINATIONS: usize = 3usize.pow(2 * LAYERS.len() as u32);

fn change_in(n: usize, user_number: usize, layer: usize) -> LayerChange {
    let digit = (2 * layer + user_number) as u32;
    let changes = [LayerChange::Nothing, LayerChange::Put, LayerChange::Removed];
    changes[n / 2 / 3usize.pow(digit) % 3]
}

fn name(layer: usize, n: usize) -> String {
    format!("{} {n}", LAYERS[layer])
}

/// Applies the changes of a layer. The word of a document names the layer, the speaker also the
/// id.
fn change_of_layer(index: &TextIndex, layer: usize) {
    for n in 0..2 * COMBINATIONS {
        for user_number in [n % 2, 1 - n % 2] {
            match change_in(n, user_number, layer) {
                LayerChange::Nothing => (),
                LayerChange::Put => index.put(Document::new(id(n), user(user_number), move || {
                    SearchText { speaker: Some(name(layer, n)), ..text(LAYERS[layer]) }
                })),
                LayerChange::Removed => index.remove(&user(user_number), id(n)),
            }
        }
    }
}

/// Returns the layer that put the document, if no later layer removed the document.
fn layer_of(n: usize, user_number: usize, layers: usize) -> Option<usize> {
    let last =
        (0..layers).rev().find(|layer| change_in(n, user_number, *layer) != LayerChange::Nothing);
    last.filter(|layer| change_in(n, user_number, *layer) == LayerChange::Put)
}

/// Checks that each user finds exactly the result of the own changes, whatever the other user
/// changed under the same ids.
fn check_apart(index: &TextIndex, layers: usize, about: &str) {
    let mut all = Vec::new();
    for user_number in 0..2 {
        for (layer, word) in LAYERS.iter().enumerate() {
            let own =
                (0..2 * COMBINATIONS).filter(|n| layer_of(*n, user_number, layers) == Some(layer));
            let mut expected: Vec<MemoryId> = own.clone().map(id).collect();
            expected.sort_unstable();
            let mut found: Vec<_> =
                search(index, user_number, word, 9999).into_iter().map(|(id, _)| id).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{about}: words of {}, {word}", user(user_number));
            let names = (0..2 * COMBINATIONS).map(|n| name(layer, n)).collect();
            let speakers: BTreeSet<_> =
                index.speakers(&user(user_number), &names).unwrap().into_iter().collect();
            assert_eq!(
                speakers,
                own.map(|n| name(layer, n)).collect(),
                "{about}: speakers of {}",
                user(user_number)
            );
            all.extend(expected.into_iter().map(|id| (user(user_number), id)));
        }
    }
    let mut ids = index.ids().unwrap();
    ids.sort_unstable();
    all.sort_unstable();
    assert_eq!(ids, all, "{about}");
}

#[test]
fn law_isolated_two_users_with_the_same_ids_lose_no_word_to_each_other() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    change_of_layer(&index, 0);
    check_apart(&index, 1, "in memory");
    assert!(index.flush(at(1)).unwrap());
    check_apart(&index, 1, "on disk");
    change_of_layer(&index, 1);
    drop(index.layers.write().freeze(at(2)));
    check_apart(&index, 2, "during a flush");
    change_of_layer(&index, 2);
    check_apart(&index, 3, "during a flush, and changed since");
    assert!(index.flush(at(3)).unwrap());
    check_apart(&index, 3, "all on disk");
    drop(index);
    check_apart(&open(&dir), 3, "opened again");
}
