//! `--output`: one JSON result per line, to a file or to standard output, by a thread of its own.
//!
//! Its queue is bounded: [`Output::write`] waits when it is full, which is right for files (nothing is lost);
//! [`Output::try_write`] drops and counts, which is right for live sources (nothing is held up).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use media::StreamId;
use thiserror::Error;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::inputs::Clip;
use crate::resume::Resume;

/// Lines that may wait for the disk or the reader of standard output.
const QUEUE: usize = 256;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `-`
    Stdout,
    /// Anything else. What is in the file is overwritten, or kept when resuming.
    File(PathBuf),
}

impl From<&str> for Target {
    fn from(text: &str) -> Self {
        if text == "-" { Target::Stdout } else { Target::File(text.into()) }
    }
}

/// Why lines can't be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// Whoever read standard output is gone; nothing is wrong.
    #[error("the reader of standard output is gone")]
    ReaderGone,
    /// Disk full, and the like.
    #[error("{target}: {error}")]
    Io {
        /// Which file.
        target: String,
        /// What the system said.
        error: io::Error,
    },
}

/// It takes no more lines; [`Output::close`] says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the output is closed")]
pub struct OutputClosed;

/// The sending end. Cheap to clone.
#[derive(Clone)]
pub struct OutputSender {
    queue: mpsc::Sender<Command>,
    dropped: Arc<AtomicU64>,
}

/// An open output.
pub struct Output {
    sender: OutputSender,
    thread: JoinHandle<Result<u64, OutputError>>,
}

enum Command {
    Line { stream: StreamId, json: Bytes },
    Finished { clip: Box<Clip>, recorded: oneshot::Sender<()> },
}

impl Output {
    /// Opens `target`; finished clips are recorded in `resume`.
    ///
    /// # Errors
    /// When the file or the thread can't be had.
    pub fn open(target: &Target, resume: Option<Resume>) -> Result<Self, OutputError> {
        let (name, sink): (String, Sink) = match target {
            Target::Stdout => ("standard output".into(), Sink::Stdout(io::stdout())),
            Target::File(path) => {
                let name = path.display().to_string();
                let mut options = File::options();
                options.create(true);
                match resume {
                    Some(_) => options.append(true),
                    None => options.write(true).truncate(true),
                };
                let file = options
                    .open(path)
                    .and_then(|file| crate::resume::sync_folder(path).map(|()| file))
                    .map_err(|error| OutputError::Io { target: name.clone(), error })?;
                (name, Sink::File(file))
            }
        };
        Self::start(name, sink, resume)
    }

    /// Writes no lines anywhere, but records finished clips.
    ///
    /// # Errors
    /// When the thread can't be had.
    pub fn only_recording(resume: Resume) -> Result<Self, OutputError> {
        Self::start("record".into(), Sink::Nowhere, Some(resume))
    }

    fn start(name: String, sink: Sink, resume: Option<Resume>) -> Result<Self, OutputError> {
        let (queue, commands) = mpsc::channel(QUEUE);
        let mut writer = Writer { sink: BufWriter::new(sink), resume, lines: HashMap::new() };
        let target = name.clone();
        let thread = std::thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                writer.run(commands).map_err(|error| match error.kind() {
                    io::ErrorKind::BrokenPipe => OutputError::ReaderGone,
                    _ => OutputError::Io { target, error },
                })
            })
            .map_err(|error| OutputError::Io { target: name, error })?;
        Ok(Output { sender: OutputSender { queue, dropped: Arc::default() }, thread })
    }

    /// An end to write to.
    pub fn sender(&self) -> OutputSender {
        self.sender.clone()
    }

    /// Writes what waits and ends, once every [`OutputSender`] is gone; returns how many lines were written.
    ///
    /// # Errors
    /// The first that the writer met; it took no lines after it.
    pub async fn close(self) -> Result<u64, OutputError> {
        drop(self.sender);
        let joined = tokio::task::spawn_blocking(|| self.thread.join()).await;
        match joined {
            Ok(Ok(outcome)) => outcome,
            _ => Err(OutputError::Io {
                target: "output".into(),
                error: io::Error::other("its thread was lost"),
            }),
        }
    }
}

impl OutputSender {
    /// Hands over a line, without its end; waits while the queue is full.
    ///
    /// # Errors
    /// When the writer has ended.
    pub async fn write(&self, stream: &StreamId, json: Bytes) -> Result<(), OutputClosed> {
        let line = Command::Line { stream: stream.clone(), json };
        self.queue.send(line).await.map_err(|_| OutputClosed)
    }

    /// Hands over a line; false when the queue is full and the line was dropped and counted.
    ///
    /// # Errors
    /// When the writer has ended.
    pub fn try_write(&self, stream: &StreamId, json: Bytes) -> Result<bool, OutputClosed> {
        match self.queue.try_send(Command::Line { stream: stream.clone(), json }) {
            Ok(()) => Ok(true),
            Err(TrySendError::Closed(_)) => Err(OutputClosed),
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(false)
            }
        }
    }

    /// Lines dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// All lines of this clip were handed over: when this returns they are on the disk and recorded.
    ///
    /// # Errors
    /// When the writer has ended.
    pub async fn finished(&self, clip: &Clip) -> Result<(), OutputClosed> {
        let (recorded, done) = oneshot::channel();
        let command = Command::Finished { clip: Box::new(clip.clone()), recorded };
        self.queue.send(command).await.map_err(|_| OutputClosed)?;
        done.await.map_err(|_| OutputClosed)
    }

    /// Returns when the writer has ended by itself: the reader is gone or the disk is full.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

enum Sink {
    Stdout(io::Stdout),
    File(File),
    Nowhere,
    #[cfg(test)]
    Pipe(io::PipeWriter),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stdout(stdout) => stdout.write(bytes),
            Sink::File(file) => file.write(bytes),
            Sink::Nowhere => Ok(bytes.len()),
            #[cfg(test)]
            Sink::Pipe(pipe) => pipe.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Stdout(stdout) => stdout.flush(),
            _ => Ok(()),
        }
    }
}

struct Writer {
    sink: BufWriter<Sink>,
    resume: Option<Resume>,
    /// Per stream not yet finished.
    lines: HashMap<StreamId, u64>,
}

impl Writer {
    fn run(&mut self, mut commands: mpsc::Receiver<Command>) -> io::Result<u64> {
        let mut written = 0;
        while let Some(command) = commands.blocking_recv() {
            match command {
                Command::Line { stream, json } => {
                    self.sink.write_all(&json)?;
                    self.sink.write_all(b"\n")?;
                    written += 1;
                    *self.lines.entry(stream).or_default() += 1;
                    // A reader sees a line as soon as nothing more waits to be written.
                    if commands.is_empty() {
                        self.sink.flush()?;
                    }
                }
                Command::Finished { clip, recorded } => {
                    self.finish(&clip)?;
                    // Whoever asked may be gone; that the clip is recorded holds all the same.
                    let _ = recorded.send(());
                }
            }
        }
        self.sink.flush()?;
        Ok(written)
    }

    fn finish(&mut self, clip: &Clip) -> io::Result<()> {
        let lines = self.lines.remove(&StreamId::from(clip.id.as_str())).unwrap_or(0);
        let lines = if matches!(self.sink.get_ref(), Sink::Nowhere) { 0 } else { lines };
        let Some(resume) = &mut self.resume else { return Ok(()) };
        self.sink.flush()?;
        if let Sink::File(file) = self.sink.get_ref() {
            file.sync_data()?;
        }
        resume.record(clip, lines)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    fn clip(name: &str) -> Clip {
        Clip { id: name.into(), uri: name.into(), ..Clip::default() }
    }

    fn json(stream: &str, n: usize) -> Bytes {
        format!("{{\"stream\":\"{stream}\",\"n\":{n}}}").into()
    }

    #[tokio::test]
    async fn every_line_arrives_whole_and_in_order() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let output = Output::start("pipe".into(), Sink::Pipe(pipe), None).unwrap();
        let sender = output.sender();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        let stream = StreamId::from("a");
        for n in 0..1_000 {
            sender.write(&stream, json("a", n)).await.unwrap();
        }
        drop(sender);
        assert_eq!(output.close().await.unwrap(), 1_000);
        let text = reading.join().unwrap();
        for (n, line) in text.lines().enumerate() {
            assert_eq!(line.as_bytes(), json("a", n));
        }
        assert_eq!(text.lines().count(), 1_000);
    }

    #[tokio::test]
    async fn a_line_is_seen_before_the_next_is_written() {
        let (reader, pipe) = io::pipe().unwrap();
        let output = Output::start("pipe".into(), Sink::Pipe(pipe), None).unwrap();
        output.sender().write(&StreamId::from("a"), json("a", 1)).await.unwrap();
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(reader).read_line(&mut line).unwrap();
            line
        });
        assert_eq!(line.await.unwrap().trim_end().as_bytes(), json("a", 1));
        output.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_is_no_fault_and_blocks_nobody() {
        let (reader, pipe) = io::pipe().unwrap();
        let output = Output::start("pipe".into(), Sink::Pipe(pipe), None).unwrap();
        drop(reader);
        let sender = output.sender();
        let stream = StreamId::from("a");
        while sender.write(&stream, json("a", 1)).await.is_ok() {}
        sender.closed().await;
        assert_eq!(sender.try_write(&stream, json("a", 2)), Err(OutputClosed));
        assert_eq!(sender.finished(&clip("a")).await, Err(OutputClosed));
        drop(sender);
        assert!(matches!(output.close().await, Err(OutputError::ReaderGone)));
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_costs_counted_lines() {
        let (reader, pipe) = io::pipe().unwrap();
        let output = Output::start("pipe".into(), Sink::Pipe(pipe), None).unwrap();
        let sender = output.sender();
        let stream = StreamId::from("a");
        let long = Bytes::from(vec![b'x'; 64 << 10]);
        let mut taken = 0;
        while sender.try_write(&stream, long.clone()).unwrap() {
            taken += 1;
        }
        assert!(taken >= QUEUE);
        assert_eq!(sender.dropped(), 1);
        drop((reader, sender));
        assert!(matches!(output.close().await, Err(OutputError::ReaderGone)));
    }

    #[tokio::test]
    async fn a_killed_run_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (state, out) = (dir.path().join("state"), dir.path().join("out.jsonl"));
        let target = Target::File(out.clone());
        let open = || {
            let resume = Resume::open(&state, Some(&out)).unwrap();
            let left = resume.remaining(vec![clip("a"), clip("b"), clip("c")]);
            (Output::open(&target, Some(resume)).unwrap(), left)
        };
        // Killed after `a` was finished and while `b` was under way.
        let (output, left) = open();
        assert_eq!(left.len(), 3);
        let sender = output.sender();
        let (a, b) = (StreamId::from("a"), StreamId::from("b"));
        sender.write(&b, json("b", 1)).await.unwrap();
        sender.write(&a, json("a", 1)).await.unwrap();
        sender.finished(&clip("a")).await.unwrap();
        sender.write(&b, json("b", 2)).await.unwrap();
        drop(sender);
        output.close().await.unwrap();

        let (output, left) = open();
        assert_eq!(left, [clip("b"), clip("c")]);
        let sender = output.sender();
        for clip in &left {
            sender.write(&StreamId::from(clip.id.as_str()), json(&clip.id, 1)).await.unwrap();
            sender.finished(clip).await.unwrap();
        }
        drop(sender);
        output.close().await.unwrap();
        let text = std::fs::read_to_string(&out).unwrap();
        let want = [json("a", 1), json("b", 1), json("c", 1)];
        assert_eq!(text.lines().map(str::as_bytes).collect::<Vec<_>>(), want);
        assert_eq!(open().1, []);
    }
}
