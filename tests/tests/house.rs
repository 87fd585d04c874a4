//! The house rules that no compiler checks: which way the arrows point, which room uses which package, and that
//! nothing in the tree is tied to one machine.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand};
use system_tests::workspace;

/// Each room and the rooms it may know. `tests` and `examples` sit on top and nothing knows them.
const ARROWS: [(&str, &[&str]); 5] = [
    ("media", &[]),
    ("models", &["media"]),
    ("engine", &["models", "media"]),
    ("actors", &["engine", "models", "media"]),
    ("pipeline", &["actors", "engine", "models", "media"]),
];
const ON_TOP: [&str; 2] = ["system-tests", "examples"];

/// Packages that belong to some rooms only.
const ONLY_IN: [(&str, &[&str]); 11] = [
    ("ffmpeg-next", &["media"]),
    ("ort", &["models"]),
    ("llama-cpp-sys-2", &["models"]),
    ("llguidance", &["models"]),
    ("tokenizers", &["models"]),
    ("ractor", &["actors"]),
    ("axum", &["pipeline"]),
    ("clap", &["pipeline"]),
    ("minijinja", &["pipeline"]),
    ("serde-saphyr", &["pipeline"]),
    ("indicatif", &["pipeline"]),
];

/// Where the packages that this system is built on are at work.
const AT_WORK: [(&str, &[&str]); 8] = [
    ("tokio", &["engine", "actors", "pipeline"]),
    ("tokio-stream", &["engine", "actors"]),
    ("ractor", &["actors"]),
    ("ffmpeg-next", &["media"]),
    ("image", &["models"]),
    ("bytes", &["media", "actors"]),
    ("serde", &["media", "models", "engine", "actors", "pipeline"]),
    ("metrics", &["engine"]),
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .current_dir(workspace())
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo knows its workspace")
}

/// Direct dependencies of each member, of every kind.
fn dependencies(metadata: &Metadata) -> BTreeMap<&str, BTreeSet<&str>> {
    metadata
        .packages
        .iter()
        .map(|p| (p.name.as_str(), p.dependencies.iter().map(|d| d.name.as_str()).collect()))
        .collect()
}

#[test]
fn arrows_point_one_way() {
    let metadata = metadata();
    let found = dependencies(&metadata);
    let members: BTreeSet<&str> = found.keys().copied().collect();
    let known: BTreeSet<&str> = ARROWS.iter().map(|a| a.0).chain(ON_TOP).collect();
    assert_eq!(members, known, "every member has its place in this test");
    for (room, may_know) in ARROWS {
        let knows: BTreeSet<&str> = found[room].intersection(&members).copied().collect();
        let allowed: BTreeSet<&str> = may_know.iter().copied().collect();
        assert!(knows.is_subset(&allowed), "`{room}` may know {allowed:?}, knows {knows:?}");
    }
}

#[test]
fn packages_stay_in_their_rooms() {
    let metadata = metadata();
    for package in metadata.packages.iter().filter(|p| !ON_TOP.contains(&p.name.as_str())) {
        for dependency in &package.dependencies {
            for (name, rooms) in ONLY_IN {
                assert!(
                    dependency.name != name || rooms.contains(&package.name.as_str()),
                    "`{name}` belongs to {rooms:?}, and `{}` depends on it",
                    package.name
                );
            }
        }
    }
}

#[test]
fn each_package_works_where_it_belongs() {
    let metadata = metadata();
    let mut missing = Vec::new();
    for (name, rooms) in AT_WORK {
        for room in rooms {
            let package = metadata.packages.iter().find(|p| p.name.as_str() == *room);
            let package = package.expect("the room exists");
            let normal = |d: &&Dependency| d.name == name && d.kind == DependencyKind::Normal;
            if package.dependencies.iter().find(normal).is_none() {
                missing.push(format!("`{room}` does not depend on `{name}` directly"));
            }
            let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
            if !names(folder.join("src").as_std_path(), &name.replace('-', "_")) {
                missing.push(format!("`{room}` does not name `{name}` in its sources"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether code (not a comment) below this folder names the crate: `name::…` or `use name as …`.
fn names(folder: &Path, name: &str) -> bool {
    let in_line = |line: &str| {
        line.match_indices(name).any(|(at, _)| {
            let starts = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
            let rest = &line[at + name.len()..];
            starts && (rest.starts_with("::") || rest.starts_with(" as "))
        })
    };
    files(folder).iter().filter(|f| f.extension().is_some_and(|e| e == "rs")).any(|file| {
        let text = std::fs::read_to_string(file).expect("sources are text");
        text.lines().filter(|l| !l.trim_start().starts_with("//")).any(in_line)
    })
}

#[test]
fn ready_configurations_are_there() {
    for name in ["demo", "live-camera", "short-videos", "audio-only", "minimal"] {
        let path = workspace().join("configs").join(format!("{name}.yaml"));
        assert!(path.is_file(), "{} is missing", path.display());
    }
}

#[test]
fn nothing_in_the_tree_is_tied_to_one_machine() {
    // Put together here, so that this file does not name them itself.
    let banned: Vec<String> = [
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("/wo", "rk/"),
        ("/tm", "p/w"),
        ("registry.np", "mjs"),
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("deb.deb", "ian.org"),
        ("huggingface", ".co/"),
    ]
    .map(|(a, b)| format!("{a}{b}"))
    .to_vec();
    let mut seen = 0;
    let mut found = Vec::new();
    for file in files(workspace()) {
        // Binary files, and the lock file with crates.io's address, say nothing of a machine.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        if file.ends_with("Cargo.lock") {
            continue;
        }
        seen += 1;
        for (number, line) in text.lines().enumerate() {
            for word in banned.iter().filter(|w| line.contains(w.as_str())) {
                found.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    assert!(seen > 50, "{seen} files looked at");
    assert!(found.is_empty(), "{found:#?}");
}

/// Files below a folder, without what cargo and git keep there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("folders of the tree can be listed") {
            let path = entry.expect("and read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name == "target" || name == ".git" || name == "NOTES.local" {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found
}
