//! What the fuzzer has found worth keeping, once more with each change.

use std::path::Path;

use super::{TARGETS, seeds};

#[test]
fn nothing_in_the_corpus_breaks_a_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, target) in TARGETS {
        let files = std::fs::read_dir(corpus.join(name)).expect("a corpus");
        let files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
        assert!(!files.is_empty(), "no corpus for {name}");
        for file in files {
            let bytes = std::fs::read(&file).expect("a file");
            // the last line of a failed test says which it was
            println!("{}", file.display());
            target(&bytes);
        }
    }
}

#[test]
fn seeds_of_all_targets_are_in_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, _) in TARGETS {
        assert!(seeds().iter().any(|s| s.0 == *name), "no seed for {name}");
    }
    for (target, name, bytes) in seeds() {
        let kept = std::fs::read(corpus.join(target).join(name)).unwrap_or_default();
        assert!(kept == bytes, "{target}/{name}: scripts/fuzz --seeds");
    }
}
