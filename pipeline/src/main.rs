//! The binary `pipeline`.

fn main() {}
