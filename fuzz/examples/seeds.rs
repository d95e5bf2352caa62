//! Writes the seeds into the corpus: RUSTFLAGS='--cfg fuzzing' cargo run --example seeds

fn main() -> std::io::Result<()> {
    #[cfg(fuzzing)]
    for (target, name, bytes) in ibacm::fuzzing::seeds().into_iter().chain(libibacm::fuzzing::seeds()) {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(name), bytes)?;
    }
    Ok(())
}
