#![doc = "The binary `pipeline`."]
fn main() {}
