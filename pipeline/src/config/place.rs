//! Where in a configuration a setting stands, for problems that are found after it was compiled.

use std::path::Path;

use super::problem::At;
use super::set;
use super::tree::{self, Node};

/// The place of `path` (`stages.fused.budget`) in a file with the values of `--set`; of the nearest thing around it
/// when it is left to its default.
pub fn place(file: &Path, overrides: &[String], path: &str) -> At {
    let origin = file.display().to_string();
    let mut unused = Vec::new();
    let root = tree::read(file).ok().and_then(|text| tree::parse(&text, &origin, &mut unused));
    let Some(mut root) = root else { return At::whole(&origin) };
    for option in overrides {
        set::apply(&mut root, option, &mut unused);
    }
    nearest(&root, path).unwrap_or_else(|| At::whole(&origin))
}

/// The value itself, or the key of the innermost map on the way to it.
fn nearest(root: &Node, path: &str) -> Option<At> {
    let mut at = None;
    let mut node = root;
    let mut keys = path.split('.').peekable();
    while let Some(key) = keys.next() {
        let Some(entry) = node.entry(key) else { break };
        let is_map = !entry.node.entries().is_empty();
        at = Some(if keys.peek().is_some() || is_map { &entry.key_at } else { &entry.node.at });
        node = &entry.node;
    }
    at.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_left_out_is_placed_at_what_would_hold_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.yaml");
        std::fs::write(&file, "stages:\n  fused: { kind: fuse,\n    budget: 1s }\n").unwrap();
        let at = |path: &str, set: &[String]| {
            let at = place(&file, set, path);
            (at.line, at.column)
        };
        assert_eq!(at("stages.fused.budget", &[]), (3, 13));
        assert_eq!(at("stages.fused", &[]), (2, 3));
        assert_eq!(at("stages.fused.window", &[]), (2, 3));
        assert_eq!(at("compute.lanes", &[]), (0, 0));
        let set = ["stages.fused.budget=9ms".to_owned()];
        let there = place(&file, &set, "stages.fused.budget");
        assert_eq!(there.to_string(), "--set stages.fused.budget");
        let gone = place(Path::new("nowhere.yaml"), &[], "stages");
        assert_eq!(gone.to_string(), "nowhere.yaml");
    }
}
