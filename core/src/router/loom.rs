//! The ring under the model checker: every interleaving of readers and a writer. Run by `ci/steps/loom`.

use loom::sync::Arc;
use loom::thread;

use super::ring::{GENES, Ring};

/// The words of table `version`.
fn words(version: u64) -> [u64; GENES] {
    [version * 10, version * 10 + 1]
}

#[test]
fn a_reader_gets_word_and_version_of_one_table_and_never_an_older_one_again() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(false));
        ring.publish(&words(1), 1);
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                for version in 2..=4 {
                    ring.publish(&words(version), version);
                }
            })
        };
        let mut last = 1;
        for gene in [0, 1] {
            let (word, version) = ring.word(gene);
            assert_eq!(word, version * 10 + u64::from(gene), "a word of another table");
            assert!(version >= last, "version {version} after {last}");
            last = version;
        }
        writer.join().unwrap();
        assert_eq!(ring.word(1), (41, 4));
    });
}

#[test]
fn two_readers_agree_with_the_order_of_the_versions() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(false));
        ring.publish(&words(1), 1);
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || ring.word(0))
        };
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.publish(&words(2), 2);
                ring.publish(&words(3), 3);
            })
        };
        let (word, version) = ring.word(1);
        assert_eq!(word, version * 10 + 1);
        let (word, version) = reader.join().unwrap();
        assert_eq!(word, version * 10);
        writer.join().unwrap();
    });
}
