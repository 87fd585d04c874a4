//! `cargo run --release -p models --example requantise -- SRC.gguf DST.gguf`
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(src), Some(dst)) = (arguments.next(), arguments.next()) else {
        return Err("usage: requantise SRC.gguf DST.gguf".into());
    };
    Ok(models::llama::requantise(Path::new(&src), Path::new(&dst))?)
}
